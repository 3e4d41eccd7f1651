// Rules of the structs that messages hold, besides their types (partc/format/message_parts.py).
#pragma once

#include <string>

#include "errors.hpp"
#include "format/messages.gen.hpp"

namespace partc::messages {

/// Throws Error: the element type is none.
void check(const TensorSpec& spec);
/// Throws Error: a parameter is out of range.
void check(const Sampling& sampling);

/// Describes an error; every error that is no run error comes of the input or is a bug.
Problem problem_of(const partc::Error& error);
/// The error again.
partc::Error error_of(const Problem& problem);

/// The kind of a message. Throws Error: it has none.
const std::string& kind_in(const Value& value);

}  // namespace partc::messages
