#include "core/source/reading.hpp"

#include <algorithm>

#include "format/facts.gen.hpp"

namespace partc::core {
namespace {

/// Whole numbers of a tensor of any such type. Throws Error: it has another type.
std::vector<std::int64_t> whole_numbers(const Tensor& tensor) {
  std::vector<std::int64_t> found;
  auto read = [&](auto sample) {
    for (const auto number : tensor.elements<decltype(sample)>()) found.push_back(static_cast<std::int64_t>(number));
  };
  const std::string_view type = tensor.type->held;
  if (type == "int64") read(std::int64_t{});
  else if (type == "int32") read(std::int32_t{});
  else if (type == "int16") read(std::int16_t{});
  else if (type == "int8") read(std::int8_t{});
  else if (type == "uint64") read(std::uint64_t{});
  else if (type == "uint32") read(std::uint32_t{});
  else if (type == "uint16") read(std::uint16_t{});
  else if (type == "uint8") read(std::uint8_t{});
  else throw run_error(std::string(type) + " is no type of integers", "length");
  return found;
}

void fill(Job& job, Tensors arrays, const std::optional<std::vector<std::int64_t>>& given, const Role& role) {
  job.dims = check_tensors(arrays, role);
  job.inputs = std::move(arrays);
  if (!role.has_step_inputs()) return;
  const std::uint64_t rows = size_or(job.dims, "batch", 1), width = size_or(job.dims, "sequence", 1);
  std::vector<std::int64_t> lengths(rows, static_cast<std::int64_t>(width));
  if (given) lengths = *given;
  job.position.assign(lengths.size(), 0);
  job.length.assign(lengths.begin(), lengths.end());
  const bool fits = std::ranges::all_of(lengths, [&](std::int64_t length) {
    return 1 <= length && static_cast<std::uint64_t>(length) <= width;
  });
  if (fits && lengths.size() == rows) return;
  std::string told;
  for (const std::int64_t length : lengths) told += (told.empty() ? "" : ", ") + std::to_string(length);
  throw run_error("the lengths [" + told + "] do not fit " + std::to_string(rows) + " sequences of " +
                      std::to_string(width),
                  "length");
}

/// Take the tokens that the client has from before.
void fill_known(Job& job, const messages::Submit& submit, const Role& role) {
  if (submit.known.empty()) return;
  if (submit.known.size() != job.tokens.size()) {
    throw run_error(std::to_string(submit.known.size()) + " known answers for " + std::to_string(job.tokens.size()) +
                        " prompts",
                    "known");
  }
  std::size_t steps = 0;
  for (const Counts& row : submit.known) {
    check_tokens(row, "known", role.model());
    steps = std::max(steps, row.size());
  }
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<std::int64_t> column;
    for (const Counts& row : submit.known) {
      const std::uint64_t token = step < row.size() ? row[step] : row.empty() ? 0 : row.back();
      column.push_back(static_cast<std::int64_t>(token));
    }
    job.drawn.push_back(Tensor::int64({column.size()}, column));
    job.take(column);
    if (job.window) job.window->drafts.add(static_cast<std::uint64_t>(column.front()));
  }
  if (job.finished() || submit.known != job.tokens) {
    throw run_error("the known tokens end before their last one, or are complete", "known");
  }
}

void fill_answer(Job& job, const messages::Submit& submit, const Role& role) {
  job.max_new_tokens = submit.max_new_tokens;
  job.stop.insert(submit.stop.begin(), submit.stop.end());
  for (const std::int64_t end : role.model().eos_token_ids) {
    if (!submit.ignore_eos && end >= 0) job.stop.insert(static_cast<std::uint64_t>(end));
  }
  job.tokens.resize(job.length.size());
  job.finish.resize(job.length.size());
  const bool is_one = submit.reuse && submit.prompts.size() == 1;
  job.shares = is_one && !submit.trace;
  if (is_one && role.model().prefix_reuse) job.reusable = submit.prompts.front();
  if (submit.drafts && job.length.size() == 1 && !submit.trace && role.guesses()) {
    check_tokens(submit.expected, "expected", role.model());
    job.window.emplace(Drafts(submit.prompts.empty() ? Counts{} : submit.prompts.front(), submit.expected));
  }
  fill_known(job, submit, role);
}

/// Make the first step of prompts: right-padded to one length, each sequence with its own `length`.
/// Tensors beside them are the picture or the sound that they speak of.
void fill_prompts(Job& job, const messages::Submit& submit, const Frames& frames, const Role& role) {
  check_prompts(submit.prompts, submit.max_new_tokens, role);
  const Tensors given = read_tensors(submit.values, frames);
  check_placeholders(submit.prompts, !given.empty(), role);
  std::vector<std::int64_t> lengths;
  const std::size_t start = role.model().start_tokens.size();
  for (const Counts& prompt : submit.prompts) {
    lengths.push_back(static_cast<std::int64_t>(start != 0 ? start : prompt.size()));
  }
  fill(job, with_media(padded(submit.prompts, role), given, role), lengths, role);
  if (role.generates()) fill_answer(job, submit, role);
}

/// Make the first step of a request that brings its tensors; the only one where the model does not generate.
void fill_tensors(Job& job, const messages::Submit& submit, const Frames& frames, const Role& role) {
  if (role.takes_tokens() && role.generates()) {
    throw run_error("a model that generates text takes prompts, not tensors", "", "send prompts");
  }
  Tensors arrays = with_start(read_tensors(submit.values, frames), role);
  std::optional<std::vector<std::int64_t>> lengths;
  if (const Tensor* given = role.has_step_inputs() ? arrays.find("length") : nullptr) {
    lengths = whole_numbers(*given);
    arrays.erase("length");
  }
  fill(job, std::move(arrays), lengths, role);
  if (!role.generates()) return;
  check_length(std::ranges::max(job.length), "max_new_tokens", submit.max_new_tokens, role);
  fill_answer(job, submit, role);
}

}  // namespace

JobPtr read_job(const Origin& origin, const messages::Submit& submit, const Frames& frames, const Role& role,
                double now) {
  auto job = std::make_shared<Job>();
  job->origin = origin;
  job->ticket = submit.ticket;
  job->sampling = submit.sampling;
  job->trace = submit.trace;
  job->submitted = now;
  job->progress.since = now;
  if (submit.values.empty() || !submit.prompts.empty()) {
    fill_prompts(*job, submit, frames, role);
  } else {
    fill_tensors(*job, submit, frames, role);
  }
  return job;
}

}  // namespace partc::core
