#include "format/message_parts.hpp"

#include <cmath>
#include <optional>

#include "format/complaints.hpp"
#include "format/dtypes.hpp"
#include "format/text.hpp"

namespace partc::messages {
namespace {

std::optional<std::string> unless_empty(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

}  // namespace

void check(const TensorSpec& spec) {
  if (element_type(spec.dtype) == nullptr) throw refused(in_quotes(spec.dtype, 40) + " is no element type");
}

void check(const Sampling& sampling) {
  const bool is_temperature = std::isfinite(sampling.temperature) && sampling.temperature >= 0.0;
  if (!is_temperature) throw run_error("it is out of range", "temperature", "0 (greedy) or more");
  const bool is_share = 0.0 < sampling.top_p && sampling.top_p <= 1.0;
  if (!is_share) throw run_error("it is out of range", "top_p", "above 0, at most 1");
}

Problem problem_of(const partc::Error& error) {
  const std::string cause = error.kind == ErrorKind::run      ? error.cause
                            : error.kind == ErrorKind::bundle ? "input"
                                                              : "bug";
  return {cause, error.message, unless_empty(error.where), unless_empty(error.hint)};
}

partc::Error error_of(const Problem& problem) {
  return run_error(problem.message, problem.where.value_or(""), problem.hint.value_or(""), problem.cause);
}

const std::string& kind_in(const Value& value) {
  const Object* object = value.as<Object>();
  const Value* kind = object == nullptr ? nullptr : object->find("kind");
  const std::string* text = kind == nullptr ? nullptr : kind->as<std::string>();
  if (text == nullptr) throw refused("a header is a map with its kind");
  return *text;
}

}  // namespace partc::messages
