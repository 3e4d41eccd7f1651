#include "shell/last_words.hpp"

#include <cstdio>
#include <optional>
#include <string>

#include "format/json.hpp"
#include "format/message_parts.hpp"

namespace partc::shell {

void say_last_words(const Error& error) {
  const auto optional = [](const std::optional<std::string>& text) { return text ? Value{*text} : Value{}; };
  const messages::Problem problem = messages::problem_of(error);
  const Object fields{{"cause", {problem.cause}},
                      {"message", {problem.message}},
                      {"where", optional(problem.where)},
                      {"hint", optional(problem.hint)}};
  std::printf("%s\n", compact_json({Object{{"error", {fields}}}}).c_str());
  std::fflush(stdout);
}

}  // namespace partc::shell
