/** The parts of data that targets and mutators replace. */
#pragma once

#include <vector>

#include "format/value.hpp"

namespace partc::fuzz {

/** A value, and then all that is in it. */
inline void collect(Value& value, std::vector<Value*>& found) {
  found.push_back(&value);
  if (List* list = std::get_if<List>(&value.data))
    for (Value& item : *list) collect(item, found);
  if (Object* object = std::get_if<Object>(&value.data))
    for (auto& [key, item] : *object) collect(item, found);
}

}  // namespace partc::fuzz
