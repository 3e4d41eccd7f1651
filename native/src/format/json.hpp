// JSON that nobody vouches for, read strictly (partc/format/json_text.py), and the one canonical text of data.
#pragma once

#include <string>
#include <string_view>

#include "format/value.hpp"

namespace partc {

/// Strict: UTF-8; no key twice; no `NaN`; no number that a float64 or 64 bits cannot hold; no half of a surrogate pair;
/// at most MOST_LEVELS levels. Throws Error: `where`, line and column.
Value read_json(std::string_view text, const std::string& where);

/// The same, and an object.
Object read_json_object(std::string_view text, const std::string& where);

/// Sorted keys, one space a level, a line end behind it: equal data give equal text (partc/format/digests.py).
std::string canonical_json(const Value& value);

/// As above, on one line without spaces, and without the line end.
std::string compact_json(const Value& value);

/// The shortest text that reads as this number again, as Python writes it.
std::string number_text(double number);

}  // namespace partc
