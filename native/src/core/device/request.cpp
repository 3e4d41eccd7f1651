#include "core/device/request.hpp"

#include <algorithm>

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/text.hpp"

namespace partc::core {
namespace {

bool is_in_prompt(const std::string& phase) { return phase.empty() || phase == program::CHUNK; }

std::string of_step(const Step& step) {
  return "step " + std::to_string(step.step) + " of request " + std::to_string(step.request);
}

}  // namespace

Request::Request(ScriptPtr script, std::uint64_t of_number, std::uint64_t of_slot, messages::Sampling sampling,
                 bool trace, double idle_since)
    : number(of_number),
      slot(of_slot),
      script_(std::move(script)),
      sampling_(std::move(sampling)),
      trace_(trace),
      idle_since_(idle_since) {}

Request::Request(ScriptPtr script, const messages::Resumption& from, const Request* before, double now)
    : Request(std::move(script), from.request, from.slot, from.sampling, from.trace, now) {
  steps = from.step;
  phase_ = from.phase;
  ends_ = from.ends;
  resets_ = from.step == 0;
  if (before == nullptr) return;
  const auto known = std::min<std::uint64_t>(before->timings.size(), from.step);
  timings.assign(before->timings.begin(), before->timings.begin() + static_cast<std::ptrdiff_t>(known));
  if (from.step != 0) kept_ = before->kept_;
}

std::uint64_t Request::settled() const {
  if (!guesses_) return steps;
  return std::max<std::uint64_t>(sure_, steps > MOST_GUESSED ? steps - MOST_GUESSED : 0);
}

Counts Request::position(std::uint64_t step) const {
  if (step <= ends_.size()) return step == 0 ? Counts{} : ends_[step - 1];
  if (ends_.empty()) throw internal_error("request " + std::to_string(number) + " has no prompt");
  Counts found = ends_.back();
  for (std::uint64_t& end : found) end += step - ends_.size();
  return found;
}

void Request::begin_behind(const std::optional<messages::Reuse>& reuse) {
  reuse_ = reuse;
  resets_ = !reuse;
}

void Request::share(const Step& step, std::vector<RequestPtr> mates) {
  const std::vector<Step> own = apart(step);
  for (std::size_t at = 0; at < own.size(); ++at) {
    Request& request = at == 0 ? *this : *mates[at - 1];
    request.take_back(own[at]);
    if (!request.under_way_.empty()) {
      throw refused("request " + std::to_string(request.number) + " has a step under way, and cannot share one");
    }
    request.check_follows(own[at]);
  }
  mates_ = std::move(mates);
}

bool Request::shares_with(std::uint64_t other) const {
  return std::ranges::any_of(mates_, [&](const RequestPtr& mate) { return mate->number == other; });
}

void Request::begin(const Step& step, const Tensors& inputs, double now) {
  take_back(step);
  if (!queued_.empty() || !under_way_.takes(step)) {
    queued_.emplace_back(step, inputs);
  } else {
    start(step, inputs, now);
  }
}

void Request::deliver(const std::string& peer, const Step& step, const Tensors& values, double now, Actions& out) {
  if (is_void(step)) return;
  take_back(step);
  Execution* execution = under_way_.of(step.step);
  if (execution == nullptr && begins_with(step)) {
    execution = &join(step, now);
  } else if (execution == nullptr && is_early(step)) {
    early_.push_back({peer, step, values});
    return;
  }
  if (execution == nullptr) execution = under_way_.first();
  if (!execution->step.same_as(step)) {
    throw refused(peer + " is at step " + std::to_string(step.step) + " of request " + std::to_string(number) +
                  " with other sizes than here");
  }
  const bool was_waiting = !execution->can_go_on();
  execution->deliver(peer, step, values, now, out);
  if (was_waiting && execution->can_go_on()) execution->ready_since = now;
  settle();
}

/// Whether the request was taken back behind a step since that began.
bool Request::is_void(const Step& step) {
  if (step.branch >= branch) return false;
  const Execution* execution = under_way_.of(step.step);
  return execution == nullptr || execution->step.branch != step.branch;
}

void Request::advance(double now, Actions& out) {
  Execution* execution = under_way_.able();
  if (execution == nullptr) return settle();
  go_on(*execution, true, now, out);
}

void Request::move(std::uint64_t step, double now, Actions& out) {
  // The earliest comes first, and may be over and gone then.
  for (std::uint64_t at = steps; at <= step; ++at) {
    Execution* execution = under_way_.of(at);
    if (execution != nullptr && execution != computing_ && execution->can_go_on()) go_on(*execution, false, now, out);
  }
}

void Request::computed(const std::vector<Tensor>& values, double seconds, double now) {
  Execution* execution = std::exchange(computing_, nullptr);
  if (execution == nullptr) throw internal_error("request " + std::to_string(number) + " computes nothing");
  execution->computed(values, seconds);
  execution->ready_since = now;
  if (!execution->can_go_on()) execution->waiting_since = now;
  settle();
}

void Request::close() {
  state = RequestState::closed;
  computing_ = nullptr;
  under_way_.drop();
  kept_.clear();
  mates_.clear();
  queued_.clear();
  early_.clear();
}

std::optional<std::pair<std::uint64_t, program::Message>> Request::waits_for() const {
  const Execution* execution = state == RequestState::waiting ? under_way_.first() : nullptr;
  const program::Message* message = execution == nullptr ? nullptr : execution->awaited();
  if (message == nullptr) return {};
  return std::pair{execution->step.step, *message};
}

std::uint64_t Request::begun(const std::string& submodule) const { return under_way_.begun(submodule, computing_); }

std::pair<std::string, std::string> Request::works_at() const {
  if (computing_ == nullptr || computing_->step.further != 0) return {};
  return {computing_->works_at(), computing_->step.phase};
}

double Request::began_s() const {
  const Execution* execution = under_way_.able();
  if (execution == nullptr) throw internal_error("request " + std::to_string(number) + " cannot go on");
  return execution->timing.started_s;
}

void Request::go_on(Execution& execution, bool computes, double now, Actions& out) {
  execution.timing.queue_s += now - execution.ready_since;
  if (execution.advance(computes, out)) {
    computing_ = &execution;
    state = RequestState::computing;
    return;
  }
  execution.ready_since = now;  // the engine works for another step
  if (execution.is_over()) {
    finish(now, out);
  } else if (!execution.can_go_on()) {
    execution.waiting_since = now;
  }
  settle();
}

/// Find out in which state it is, unless something is computed.
void Request::settle() {
  if (computing_ != nullptr) return;
  const bool waits = under_way_.able() == nullptr;
  state = under_way_.empty() ? RequestState::idle : waits ? RequestState::waiting : RequestState::ready;
}

/// Let go of what a newer branch has made void: all steps from its first row on.
///
/// What the engine computes for it goes on, but nothing follows from it.
void Request::take_back(const Step& step) {
  if (step.branch <= branch) return;
  branch = step.branch;
  under_way_.drop(step.branch);
  queued_.clear();
  std::erase_if(early_, [&](const Early& each) { return each.step.step >= step.branch; });
  if (!under_way_.has(computing_)) computing_ = nullptr;
  if (under_way_.empty()) mates_.clear();
  const std::uint64_t left = std::min(steps, step.branch);
  timings.resize(timings.size() - std::min<std::size_t>(timings.size(), steps - left));
  steps = sure_ = left;
  settle();
}

/// Whether a message is the first of a step that may begin now.
bool Request::begins_with(const Step& step) const {
  if (under_way_.empty()) return true;
  return step.step == steps + under_way_.tokens() && !script_->role->is_source() && under_way_.takes(step);
}

/// A message is the first to tell of a step.
Execution& Request::join(const Step& step, double now) {
  if (step.step < steps) {
    throw refused("step " + std::to_string(step.step) + " of request " + std::to_string(number) + " is over");
  }
  if (script_->role->is_source()) {
    throw refused("step " + std::to_string(step.step) + " of request " + std::to_string(number) + " has not begun");
  }
  return start(step, {}, now);
}

Execution& Request::start(const Step& step, const Tensors& inputs, double now) {
  check_follows(step);
  phase_ = step.phase;
  Tensors values = step_inputs(step, *script_->role);
  for (const auto& [name, tensor] : kept_) values.set(name, tensor);
  for (const auto& [name, tensor] : inputs) values.set(name, tensor);
  Timing timing;
  timing.request = number;
  const std::uint64_t behind = step.step + 1;
  timing.step = takes_token(step.phase) && behind > ends_.size() ? behind - ends_.size() : 0;
  timing.started_s = now;
  timing.epoch = script_->role->epoch();
  std::vector<Row> rows(1 + step.further, {slot, sampling_});
  for (const RequestPtr& mate : mates_) rows.push_back({mate->slot, mate->sampling_});
  if (step.busy_s && !guesses_) sure_ = steps;
  guesses_ = step.busy_s.has_value();
  // What came before the first message of a step was waiting for it, but for a request's very first.
  const double since = step.step != 0 && under_way_.empty() ? idle_since_ : now;
  Execution& execution =
      under_way_.add(script_, step, std::move(rows), trace_, std::move(values), std::move(timing), resets_);
  if (execution.can_go_on()) {
    execution.ready_since = now;
  } else {
    execution.waiting_since = since;
  }
  settle();
  return execution;
}

void Request::check_follows(const Step& step) const {
  const std::uint64_t following = steps + under_way_.tokens();
  const Counts begin = step.rows() > 1 ? Counts{step.position.front()} : step.position;
  bool fits = step.step == following && step.slot == slot;
  if (fits && step.step == 0 && reuse_) fits = begin == Counts{reuse_->rows};
  if (fits && step.step != 0) fits = !(ends_.empty() && step.step > 0) && position(step.step) == begin;
  if (fits && takes_token(step.phase) != is_in_prompt(phase_)) return;
  throw refused(of_step(step) + " does not follow its step " +
                std::to_string(static_cast<std::int64_t>(following) - 1));
}

/// The earliest step is over; what it emits goes out last, since the request's next step begins with it.
void Request::finish(double now, Actions& out) {
  const Execution over = under_way_.end_first();
  const Step& step = over.step;
  for (Timing& own : by_token(over.timing, over.tokens)) timings.push_back(std::move(own));
  idle_since_ = now;
  steps = step.step + over.tokens;
  resets_ = over.resets;
  if (over.kept) kept_ = *over.kept;
  const std::vector<RequestPtr> mates = std::exchange(mates_, {});
  for (std::size_t at = 0; at < mates.size(); ++at) mates[at]->step_was_shared(step.others[at].step, over.timing, now);
  if (step.phase == "prefill" || step.phase == program::CHUNK) ends_.push_back(step.end());
  while (!queued_.empty() && under_way_.takes(queued_.front().first)) {
    const auto [following, inputs] = std::move(queued_.front());
    queued_.pop_front();
    start(following, inputs, now);
  }
  const std::vector<Early> early = std::move(early_);
  early_.clear();
  for (const Early& each : early) deliver(each.peer, each.step, each.values, now, out);
  if (!over.emitted.empty()) out.push_back(Emitted{over.as_told(), over.emitted});
}

/// A step is over that another request has computed for this one, too; each counts all of its time.
void Request::step_was_shared(std::uint64_t step, const Timing& timing, double now) {
  timings.push_back(timing);
  timings.back().request = number;
  timings.back().step = step + 1 > ends_.size() ? step + 1 - ends_.size() : 0;
  steps = step + 1;
  phase_ = "decode";
  idle_since_ = now;
}

/// Whether a message belongs to a later step that may be known already.
bool Request::is_early(const Step& step) const {
  const std::uint64_t own = under_way_.first()->step.step;
  return step.step > own && step.step - own <= script_->most_steps && early_.size() < script_->most_early;
}

}  // namespace partc::core
