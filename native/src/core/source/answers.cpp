#include "core/source/answers.hpp"

#include <algorithm>

#include "format/message_parts.hpp"
#include "format/text.hpp"

namespace partc::core {
namespace {

Value whole(std::uint64_t number) { return {Integer{number}}; }

}  // namespace

Ending result_of(const Job& job, const Role& role, double now) {
  messages::Result result;
  result.ticket = job.ticket;
  result.tokens = job.tokens;
  result.finish = job.finish;
  result.elapsed_s = std::max(0.0, now - job.submitted);
  result.replayed = job.replayed;
  result.mismatches = job.mismatches;
  result.reused = job.reuse ? job.reuse->rows : 0;
  result.drafted = job.window ? job.window->drafted : 0;
  result.accepted = job.window ? job.window->accepted : 0;
  result.values = announced(job.outputs, role.types);
  Frames frames;
  for (const auto& [name, tensor] : job.outputs) frames.push_back(tensor.bytes);
  return {std::move(result), std::move(frames)};
}

Log ended(const Job& job, const messages::AnyMessage& ending, double now) {
  std::uint64_t tokens = 0;
  for (const Counts& row : job.tokens) tokens += row.size();
  const Value number{job.number ? Integer{*job.number} : Integer{-1}};
  const double seconds = std::max(0.0, now - job.submitted);
  if (const auto* error = std::get_if<messages::Error>(&ending)) {
    return {"request-failed",
            {{"request", number},
             {"cause", {error->problem.cause}},
             {"reason", {error->problem.message}},
             {"tokens", whole(tokens)},
             {"seconds", {seconds}}}};
  }
  Names reasons;
  for (const std::string& reason : job.finish) {
    if (std::ranges::find(reasons, reason) == reasons.end()) reasons.push_back(reason);
  }
  return {"request-ended",
          {{"request", number},
           {"finish", {joined(reasons, ", ")}},
           {"tokens", whole(tokens)},
           {"seconds", {seconds}},
           {"repeated", whole(job.replayed)}}};
}

void refusal(const Origin& origin, const messages::Submit& submit, const Error& error, Actions& out) {
  out.push_back(Send{origin, messages::Error{submit.ticket, messages::problem_of(error)}, {}});
  out.push_back(Log{"request-refused", {{"cause", {error.cause}}}});
}

}  // namespace partc::core
