#include "core/source/job.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "format/facts.gen.hpp"

namespace partc::core {
namespace {

/// Whether a state may follow another.
bool follows(JobState before, JobState next) {
  switch (before) {
    case JobState::waiting: return next == JobState::standing || next == JobState::over;
    case JobState::standing: return next == JobState::stepping || next == JobState::reporting || next == JobState::over;
    case JobState::stepping: return next == JobState::standing || next == JobState::over;
    case JobState::reporting: return next == JobState::over;
    case JobState::over: return false;
  }
  return false;
}

}  // namespace

void Job::become(JobState next) {
  if (!follows(state, next)) throw internal_error("a request cannot go over to that state");
  state = next;
}

void Job::stand() {
  if (state == JobState::stepping) become(JobState::standing);
}

void Job::step_begins(double now) {
  become(JobState::stepping);
  started = now;
  if (window) window->step_begins();
  progress.moved(now);
}

Fresh Job::take(const std::vector<std::int64_t>& given) {
  Fresh fresh;
  for (std::size_t row = 0; row < given.size(); ++row) {
    if (!finish[row].empty()) {
      fresh.emplace_back();
      continue;
    }
    const auto token = static_cast<std::uint64_t>(given[row]);
    tokens[row].push_back(token);
    if (stop.contains(token)) {
      finish[row] = "stop";
    } else if (tokens[row].size() >= max_new_tokens) {
      finish[row] = "length";
    }
    fresh.emplace_back(token);
  }
  return fresh;
}

bool Job::finished() const {
  return std::ranges::none_of(finish, [](const std::string& reason) { return reason.empty(); });
}

std::uint64_t Job::under_way() const {
  if (state != JobState::stepping) return 0;
  const std::uint64_t behind = window ? window->guesses.size() - window->steps() : 0;
  return next_step - over - behind;
}

std::uint64_t Job::may_guess() const {
  if (!window || drawn.empty()) return 0;
  const std::uint64_t guesses = window->guesses.size(), known = drawn.size() + guesses + 1;
  if (next_step != reached() + 1 + guesses || known >= max_new_tokens) return 0;
  return std::min(window->room(), max_new_tokens - known);
}

Call Job::guess(const Guess& guess) {
  window->add(guess);
  return call(next_step++);
}

bool Job::compare(std::uint64_t token) {
  if (!window) return false;
  const bool was_guessed = !window->guesses.empty();
  const std::optional<Guess> guess = window->compare(token);
  if (guess) {
    started = guess->started;
  } else if (was_guessed) {
    window->branch = next_step = reached();
  }
  return guess.has_value();
}

double Job::stands_since(double now) {
  if (!stood_ || stood_->first != step()) stood_ = {step(), now};
  return stood_->second;
}

std::pair<Fresh, Names> Job::told(std::uint64_t token) const {
  std::pair<Fresh, Names> found;
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    const bool is_there = token < tokens[row].size(), goes_on = token + 1 < tokens[row].size();
    found.first.push_back(is_there ? std::optional(tokens[row][token]) : std::nullopt);
    found.second.push_back(goes_on ? "" : finish[row]);
  }
  return found;
}

bool Job::is_news(const messages::Crossed& crossed) {
  Names names;
  for (const messages::TensorSpec& spec : crossed.values) names.push_back(spec.name);
  return crossed_.emplace(crossed.device, crossed.peer, crossed.step, std::move(names)).second;
}

void Job::open(std::uint64_t of_number, std::uint64_t of_slot, const Role& role,
               const std::optional<messages::Reuse>& of_reuse) {
  number = of_number;
  slot = of_slot;
  reuse = of_reuse;
  prompt = prompt_steps(role);
  inputs.clear();
}

std::vector<Call> Job::calls() {
  std::vector<Call> found;
  while (true) {
    found.push_back(call(next_step++));
    const std::string& phase = found.back().first.phase;
    if (phase == "prefill" || phase == "decode") return found;
  }
}

Counts Job::kept() const {
  if (reusable.empty() || over == 0) return {};
  const std::uint64_t behind = over > prompt.size() ? over - prompt.size() : 0;
  const std::uint64_t rows = prompt[std::min<std::size_t>(over, prompt.size()) - 1].first.end().front() + behind;
  Counts found = reusable;
  for (const Tensor& drew : drawn) found.push_back(static_cast<std::uint64_t>(drew.elements<std::int64_t>()[0]));
  found.resize(std::min<std::size_t>(found.size(), rows));
  return found;
}

messages::Resumption Job::rewind(std::uint64_t step, const Role& role) {
  replayed += reached() - step;
  next_step = step;
  over = step;
  if (window) window->empty();
  stand();
  if (reuse && step == 0) {
    inputs = padded({reusable}, role);
    open(*number, slot, role);
  }
  const std::string before = step != 0 ? call(step - 1).first.phase : "";
  std::vector<Counts> ends;
  for (std::size_t at = 0; at < std::min<std::uint64_t>(step, prompt.size()); ++at)
    ends.push_back(prompt[at].first.end());
  return {*number, slot, sampling, trace, step, before == program::REPLAY ? "decode" : before, std::move(ends)};
}

/// A step whose inputs are known, and its inputs.
///
/// The results of all but the last are known as well, so they need not be waited for, but for a few: a device keeps room
/// for `MOST_FORCED` steps that it has not come to.
Call Job::call(std::uint64_t step) const {
  if (step < prompt.size()) return prompt[step];
  const std::uint64_t behind = step - prompt.size();
  const Step& last = prompt.back().first;
  const bool is_waited_for = step + 1 >= reached() || (behind + 1) % MOST_FORCED == 0;
  Step following{*number,   slot,       step,     is_waited_for ? "decode" : std::string(program::REPLAY),
                 last.dims, last.end(), {},       {},
                 {},        {},         branch(), window ? std::optional(0.0) : std::nullopt};
  if (following.dims.contains("sequence")) following.dims.set("sequence", 1);
  for (std::uint64_t& end : following.position) end += behind;
  following.length.assign(following.position.size(), 1);
  Tensor ids = token(behind);
  ids.shape = {ids.shape.front(), 1};
  return {std::move(following), {{std::string(INPUT_IDS), std::move(ids)}}};
}

/// A token, from 0, that is known or guessed; (batch,).
Tensor Job::token(std::uint64_t at) const {
  if (at < drawn.size()) return drawn[at];
  const std::array guess{static_cast<std::int64_t>(window->guesses.at(at - drawn.size()).token)};
  return Tensor::int64({1}, guess);
}

/// The steps of the prompt with their inputs: one, or one a part.
std::vector<Call> Job::prompt_steps(const Role& role) const {
  std::vector<Call> found;
  const std::uint64_t total = size_or(dims, "sequence", 1), kept = reuse ? reuse->rows : 0, width = total - kept;
  const Tensors given = kept == 0 ? inputs : columns(inputs, kept, total, role);
  for (PromptPart& part : prompt_parts(given, width, length.size(), role)) {
    const std::uint64_t size = part.end - part.begin;
    const std::string phase = part.end < width ? std::string(program::CHUNK) : "prefill";
    Step step{*number, slot, found.size(), phase, dims, position, length, {}, {}, {}, 0, {}};
    if (size != total) {
      step.dims.set("sequence", size);
      step.position = {kept + part.begin};
      step.length = {size};
    }
    if (found.empty()) step.opening = messages::Opening{*number, sampling, trace, reuse};
    found.emplace_back(std::move(step), std::move(part.inputs));
  }
  return found;
}

}  // namespace partc::core
