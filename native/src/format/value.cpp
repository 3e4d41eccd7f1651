#include "format/value.hpp"

namespace partc {

std::string_view Value::kind() const {
  static constexpr std::string_view names[] = {"null", "bool", "int", "float", "str", "bytes", "array", "object"};
  return names[data.index()];
}

}  // namespace partc
