#include "core/device/request.hpp"

#include <algorithm>
#include <numeric>

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/text.hpp"

namespace partc::core {
namespace {

bool is_decode(const std::string& phase) { return phase == "decode" || phase == program::REPLAY; }
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
    const Request& request = at == 0 ? *this : *mates[at - 1];
    if (request.execution_) {
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
  if (execution_) {
    queued_.emplace_back(step, inputs);
  } else {
    start(step, inputs, now);
  }
}

void Request::deliver(const std::string& peer, const Step& step, const Tensors& values, double now, Actions& out) {
  if (!execution_) join(step, now);
  const Step& own = execution_->step;
  if (step.step != own.step && is_early(step)) {
    early_.push_back({peer, step, values});
    return;
  }
  if (!own.same_as(step)) {
    throw refused(peer + " is at step " + std::to_string(step.step) + " of request " + std::to_string(number) +
                  " with other sizes than here");
  }
  execution_->deliver(peer, step, values, now, out);
  if (state != RequestState::waiting || execution_->awaited() != nullptr) return;
  state = RequestState::ready;
  execution_->ready_since = now;
}

void Request::advance(double now, Actions& out) {
  Execution& execution = under_way();
  execution.timing.queue_s += now - execution.ready_since;
  if (execution.advance(out)) {
    state = RequestState::computing;
  } else if (execution.is_over()) {
    finish(now, out);
  } else {
    state = RequestState::waiting;
    execution.waiting_since = now;
  }
}

void Request::computed(const std::vector<Tensor>& values, double seconds, double now) {
  Execution& execution = under_way();
  execution.computed(values, seconds);
  state = RequestState::ready;
  execution.ready_since = now;
}

void Request::close() {
  state = RequestState::closed;
  if (execution_) execution_->drop();
  kept_.clear();
  mates_.clear();
  queued_.clear();
  early_.clear();
}

std::optional<std::pair<std::uint64_t, program::Message>> Request::waits_for() const {
  const bool waits = execution_ && state == RequestState::waiting;
  const program::Message* message = waits ? execution_->awaited() : nullptr;
  if (message == nullptr) return {};
  return std::pair{execution_->step.step, *message};
}

bool Request::has_begun(const std::string& submodule) const {
  return execution_ && execution_->has_begun(submodule, state == RequestState::computing);
}

std::pair<std::string, std::string> Request::works_at() const { return {under_way().works_at(), phase_}; }

Execution& Request::under_way() {
  if (!execution_) throw internal_error("request " + std::to_string(number) + " has no step under way");
  return *execution_;
}

const Execution& Request::under_way() const {
  if (!execution_) throw internal_error("request " + std::to_string(number) + " has no step under way");
  return *execution_;
}

/// A message is the first to tell of a step.
void Request::join(const Step& step, double now) {
  if (step.step < steps) {
    throw refused("step " + std::to_string(step.step) + " of request " + std::to_string(number) + " is over");
  }
  if (script_->role->is_source()) {
    throw refused("step " + std::to_string(step.step) + " of request " + std::to_string(number) + " has not begun");
  }
  start(step, {}, now);
}

void Request::start(const Step& step, const Tensors& inputs, double now) {
  if (step.others.empty()) {
    check_follows(step);
  } else {
    check_follows(apart(step).front());
  }
  phase_ = step.phase;
  Tensors values = step_inputs(step);
  for (const auto& [name, tensor] : kept_) values.set(name, tensor);
  for (const auto& [name, tensor] : inputs) values.set(name, tensor);
  Timing timing;
  timing.request = number;
  const std::uint64_t behind = step.step + 1;
  timing.step = is_decode(step.phase) && behind > ends_.size() ? behind - ends_.size() : 0;
  timing.started_s = now;
  timing.epoch = script_->role->epoch();
  std::vector<Row> rows{{slot, sampling_}};
  for (const RequestPtr& mate : mates_) rows.push_back({mate->slot, mate->sampling_});
  execution_.emplace(script_, step, std::move(rows), trace_, std::move(values), std::move(timing), resets_);
  if (execution_->awaited() == nullptr) {
    state = RequestState::ready;
    execution_->ready_since = now;
  } else {
    // What came before the first message of a step was waiting for it, but for a request's very first.
    state = RequestState::waiting;
    execution_->waiting_since = step.step != 0 ? idle_since_ : now;
  }
}

void Request::check_follows(const Step& step) const {
  bool fits = step.step == steps && step.slot == slot;
  if (fits && step.step == 0 && reuse_) fits = step.position == Counts{reuse_->rows};
  if (fits && step.step != 0) fits = !(ends_.empty() && step.step > 0) && position(step.step) == step.position;
  if (fits && is_decode(step.phase) != is_in_prompt(phase_)) return;
  throw refused(of_step(step) + " does not follow its step " + std::to_string(static_cast<std::int64_t>(steps) - 1));
}

Tensors Request::step_inputs(const Step& step) const {
  if (!script_->role->has_step_inputs()) return {};
  std::vector<std::int64_t> index(size_or(step.dims, "sequence", 1));
  std::iota(index.begin(), index.end(), 0);
  const std::vector<std::int64_t> position(step.position.begin(), step.position.end());
  const std::vector<std::int64_t> length(step.length.begin(), step.length.end());
  return {{"position", Tensor::int64({position.size()}, position)},
          {"length", Tensor::int64({length.size()}, length)},
          {"index", Tensor::int64({index.size()}, index)}};
}

/// The step is over; what it emits goes out last, since the request's next step begins with it.
void Request::finish(double now, Actions& out) {
  const Execution over = std::move(under_way());
  const Step& step = over.step;
  execution_.reset();
  timings.push_back(over.timing);
  state = RequestState::idle;
  idle_since_ = now;
  steps = step.step + 1;
  resets_ = over.resets;
  if (over.kept) kept_ = *over.kept;
  const std::vector<RequestPtr> mates = std::exchange(mates_, {});
  for (std::size_t at = 0; at < mates.size(); ++at) mates[at]->step_was_shared(step.others[at].step, over.timing, now);
  if (step.phase == "prefill" || step.phase == program::CHUNK) ends_.push_back(step.end());
  if (!queued_.empty()) {
    const auto [following, inputs] = std::move(queued_.front());
    queued_.pop_front();
    start(following, inputs, now);
  }
  const std::vector<Early> early = std::move(early_);
  early_.clear();
  for (const Early& each : early) deliver(each.peer, each.step, each.values, now, out);
  if (!over.emitted.empty()) out.push_back(Emitted{step, over.emitted});
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
  const std::uint64_t own = under_way().step.step;
  return step.step > own && step.step - own <= script_->most_steps && early_.size() < script_->most_early;
}

}  // namespace partc::core
