#include "core/device/request.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/text.hpp"

namespace partc::core {
namespace {

bool is_decode(const std::string& phase) { return phase == "decode" || phase == program::REPLAY; }
/// Both [batch, likely], as they travel.
Likelies likelies(const Tensor& ids, const Tensor& logarithms) {
  Likelies found(ids.shape.front());
  const std::size_t count = ids.shape.back();
  for (std::size_t row = 0; row < found.size(); ++row) {
    for (std::size_t at = row * count; at < (row + 1) * count; ++at) {
      const auto id = static_cast<std::uint64_t>(ids.elements<std::int64_t>()[at]);
      found[row].push_back({id, logarithms.elements<double>()[at]});
    }
  }
  return found;
}

bool is_in_prompt(const std::string& phase) { return phase.empty() || phase == program::CHUNK; }

std::string of_step(const Step& step) {
  return "step " + std::to_string(step.step) + " of request " + std::to_string(step.request);
}

}  // namespace

Script::Script(RolePtr of_role) : role(std::move(of_role)) {
  std::uint64_t most = 0;
  for (const auto& [phase, items] : role->programs) {
    std::vector<Line> lines;
    std::map<std::string, std::size_t> last;
    std::uint64_t count = 0;
    for (const program::Instruction& item : items) {
      lines.push_back({item, program::awaits(item), {}});
      count += lines.back().awaits.size();
      for (const std::string& name : program::reads(item)) last[name] = lines.size() - 1;
    }
    for (const auto& [name, at] : last) lines[at].dead.insert(name);
    programs.set(phase, std::move(lines));
    most = std::max(most, count);
  }
  most_steps = MOST_FORCED + build::most_chunks(role->model());
  most_early = most_steps * most;
}

Request::Request(ScriptPtr script, std::uint64_t number, std::uint64_t slot, messages::Sampling sampling, bool trace,
                 double idle_since)
    : number(number),
      slot(slot),
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
  const std::vector<Step> steps = apart(step);
  for (std::size_t at = 0; at < steps.size(); ++at) {
    const Request& request = at == 0 ? *this : *mates[at - 1];
    if (request.step_) {
      throw refused("request " + std::to_string(request.number) + " has a step under way, and cannot share one");
    }
    request.check_follows(steps[at]);
  }
  mates_ = std::move(mates);
}

bool Request::shares_with(std::uint64_t other) const {
  return std::ranges::any_of(mates_, [&](const RequestPtr& mate) { return mate->number == other; });
}

void Request::begin(const Step& step, const Tensors& inputs, double now) {
  if (step_) {
    queued_.emplace_back(step, inputs);
  } else {
    start(step, inputs, now);
  }
}

void Request::deliver(const std::string& peer, const Step& step, const Tensors& values, double now, Actions& out) {
  if (!step_) join(step, now);
  if (step.step != step_->step && is_early(step)) {
    early_.push_back({peer, step, values});
    return;
  }
  if (!step_->same_as(step)) {
    throw refused(peer + " is at step " + std::to_string(step.step) + " of request " + std::to_string(number) +
                  " with other sizes than here");
  }
  program::Message key{peer, {}};
  for (const auto& [name, tensor] : values) key.values.push_back(name);
  if (!came_.insert(key).second) {
    throw refused(peer + " sent " + joined(key.values, ", ") + " twice in step " + std::to_string(step.step));
  }
  if (!step.likely.empty()) step_->likely = step.likely;
  inbox_[key] = {values, now};
  for (const auto& [name, tensor] : values) timing_.received_bytes += tensor.bytes.size;
  if (state == RequestState::waiting && awaited() == nullptr) wake(now);
  if (trace_ && step.phase != program::REPLAY) out.push_back(Seen{peer, step, values});
}

void Request::advance(double now, Actions& out) {
  timing_.queue_s += now - ready_since_;
  while (at_ < program_->size()) {
    const Line& line = (*program_)[at_];
    if (awaited() != nullptr) {
      state = RequestState::waiting;
      waiting_since_ = now;
      return;
    }
    execute(line.instruction, out);
    if (state == RequestState::computing) return;
    pass();
  }
  finish(now, out);
}

void Request::computed(const std::vector<Tensor>& values, double seconds, double now) {
  const program::Names names = program::writes((*program_)[at_].instruction);
  if (std::holds_alternative<program::Sample>((*program_)[at_].instruction) && values.size() == 3) {
    step_->likely = likelies(values[1], values[2]);
    for (std::size_t row = 0; shares() && row < step_->likely.size(); ++row) {
      const messages::Sampling& how = row == 0 ? sampling_ : mates_.at(row - 1)->sampling_;
      step_->likely[row].resize(std::min<std::size_t>(step_->likely[row].size(), how.likely));
    }
  } else if (names.size() != values.size()) {
    throw internal_error("other values were computed than were asked for");
  }
  for (std::size_t at = 0; at < names.size(); ++at) values_.set(names[at], values[at]);
  timing_.compute_s += seconds;
  pass();
  state = RequestState::ready;
  ready_since_ = now;
}

void Request::close() {
  state = RequestState::closed;
  values_.clear();
  kept_.clear();
  mates_.clear();
  inbox_.clear();
  queued_.clear();
  early_.clear();
}

std::optional<std::pair<std::uint64_t, program::Message>> Request::waits_for() const {
  const program::Message* message = state == RequestState::waiting ? awaited() : nullptr;
  if (message == nullptr) return {};
  return std::pair{under_way().step, *message};
}

bool Request::has_begun(const std::string& submodule) const {
  if (!step_) return false;
  const std::size_t begun = at_ + (state == RequestState::computing);
  return std::ranges::any_of(program_->begin(), program_->begin() + static_cast<std::ptrdiff_t>(begun),
                             [&](const Line& line) {
                               const auto* run = std::get_if<program::Run>(&line.instruction);
                               return run != nullptr && run->submodule == submodule;
                             });
}

std::pair<std::string, std::string> Request::works_at() const {
  const program::Run* run = std::get_if<program::Run>(&(*program_)[at_].instruction);
  return {run == nullptr ? std::string(SAMPLE) : run->submodule, phase_};
}

const Step& Request::under_way() const {
  if (!step_) throw internal_error("request " + std::to_string(number) + " has no step under way");
  return *step_;
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
  step_ = step;
  phase_ = step.phase;
  at_ = 0;
  program_ = &script_->programs.at(step.phase);
  values_ = step_inputs(step);
  for (const auto& [name, tensor] : kept_) values_.set(name, tensor);
  for (const auto& [name, tensor] : inputs) values_.set(name, tensor);
  inbox_.clear();
  came_.clear();
  emitted_.clear();
  waiting_since_.reset();
  timing_ = Timing{};
  timing_.request = number;
  const std::uint64_t behind = step.step + 1;
  timing_.step = is_decode(step.phase) && behind > ends_.size() ? behind - ends_.size() : 0;
  timing_.started_s = now;
  timing_.epoch = script_->role->epoch();
  if (awaited() == nullptr) {
    wake(now);
  } else {
    // What came before the first message of a step was waiting for it, but for a request's very first.
    state = RequestState::waiting;
    waiting_since_ = step.step != 0 ? idle_since_ : now;
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

void Request::wake(double now) {
  state = RequestState::ready;
  ready_since_ = now;
}

const program::Message* Request::awaited() const {
  if (at_ == program_->size()) return nullptr;
  for (const program::Message& message : (*program_)[at_].awaits) {
    if (!inbox_.contains(message)) return &message;
  }
  return nullptr;
}

Tensors Request::named(const program::Names& names) const {
  Tensors found;
  for (const std::string& name : names) found.set(name, values_.at(name));
  return found;
}

void Request::execute(const program::Instruction& instruction, Actions& out) {
  const Step& step = under_way();
  std::visit(Match{[&](const program::Recv& item) { receive(item); },
                   [&](const program::Run& item) { run(item, out); },
                   [&](const program::Send& item) {
                     Tensors values = named(item.values);
                     for (const auto& [name, tensor] : values) timing_.sent_bytes += tensor.bytes.size;
                     out.push_back(Forward{item.device, step, std::move(values)});
                   },
                   [&](const program::Sample& item) {
                     if (trace_) out.push_back(Seen{script_->role->device(), step, named({item.logits})});
                     state = RequestState::computing;
                     out.push_back(draw(item.logits, step));
                   },
                   [&](const program::Add& item) { values_.set(item.total, sum(item.terms)); },
                   [&](const program::Cut& item) { cut(item); },
                   [&](const program::Join& item) { values_.set(item.whole, joined_parts(item)); },
                   [&](const program::Emit& item) { emitted_ = named(item.values); },
                   [&](const program::Keep& item) { kept_ = named(item.values); }},
             instruction);
}

/// Ask for a sub-module, with the sizes that it is called with; without any elements to compute, go on.
void Request::run(const program::Run& item, Actions& out) {
  const Role& role = *script_->role;
  const build::Submodule& module = *role.submodules.at(item.submodule);
  std::vector<Tensor> arrays;
  for (const std::string& name : item.inputs) arrays.push_back(values_.at(name));
  Dims dims = under_way().dims;
  if (item.inputs != module.inputs) {
    std::vector<const build::TensorType*> own;
    std::vector<Shape> shapes;
    for (const std::string& name : module.inputs) own.push_back(&role.types.at(name));
    for (const Tensor& array : arrays) shapes.push_back(array.shape);
    dims = program::dims_of_call(own, shapes, dims);
    if (module.states.empty() && makes_nothing(item, module, dims)) return;
  }
  state = RequestState::computing;
  Counts slots;
  for (const RequestPtr& mate : mates_) slots.push_back(mate->slot);
  out.push_back(Compute{item.submodule, slot, std::move(arrays), std::move(dims), resets_, std::move(slots)});
  resets_ = false;
}

/// Whether all outputs of a call are empty; then they are there.
bool Request::makes_nothing(const program::Run& item, const build::Submodule& module, const Dims& dims) {
  std::vector<Tensor> made;
  for (const std::string& name : module.outputs) {
    const build::TensorType& type = script_->role->types.at(name);
    made.push_back({element_type(type.dtype), evaluate_shape(type.shape, dims), Frame::copy("")});
    if (bytes_of(made.back().shape, 1) != 0) return false;
  }
  for (std::size_t at = 0; at < made.size(); ++at) values_.set(item.outputs[at], made[at]);
  return true;
}

void Request::cut(const program::Cut& item) {
  const Tensor whole = values_.at(item.whole);
  std::uint64_t begin = 0;
  const Shape sizes = cut_sizes(whole.shape.at(item.axis), item.parts.size());
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    values_.set(item.parts[part], part_of(whole, item.axis, begin, begin + sizes[part]));
    begin += sizes[part];
  }
}

Tensor Request::joined_parts(const program::Join& item) const {
  std::vector<Tensor> parts;
  for (const std::string& name : item.parts) parts.push_back(values_.at(name));
  return joined_tensors(parts, item.axis);
}

void Request::receive(const program::Recv& instruction) {
  auto found = inbox_.extract({instruction.device, instruction.values});
  for (const auto& [name, tensor] : found.mapped().values) values_.set(name, tensor);
  if (!waiting_since_) return;
  timing_.wait_s[instruction.device] += std::max(0.0, found.mapped().at - *waiting_since_);
  waiting_since_.reset();
}

/// The sum in float32, from the first to the last.
Tensor Request::sum(const program::Names& terms) const {
  const Tensor& first = values_.at(terms.front());
  std::vector<float> total(first.elements<float>().begin(), first.elements<float>().end());
  for (std::size_t at = 1; at < terms.size(); ++at) {
    const std::span<const float> term = values_.at(terms[at]).elements<float>();
    if (term.size() != total.size()) throw internal_error("values of unlike sizes are added");
    for (std::size_t place = 0; place < total.size(); ++place) total[place] += term[place];
  }
  const std::string_view bytes(reinterpret_cast<const char*>(total.data()), total.size() * sizeof(float));
  return {first.type, first.shape, Frame::copy(bytes)};
}

Draw Request::draw(const std::string& name, const Step& step) const {
  const Tensor& logits = values_.at(name);
  if (logits.shape.size() != 3 || logits.shape[1] != 1) {
    throw internal_error("logits have the shape " + list_text(logits.shape) + ", not (batch, 1, vocabulary)");
  }
  std::vector<messages::Sampling> others;
  for (const RequestPtr& mate : mates_) others.push_back(mate->sampling_);
  return {logits, sampling_, step.end(), std::move(others)};
}

/// Go to the next instruction; values that nothing uses any more are let go.
void Request::pass() {
  for (const std::string& name : (*program_)[at_].dead) values_.erase(name);
  ++at_;
}

/// The step is over; what it emits goes out last, since the request's next step begins with it.
void Request::finish(double now, Actions& out) {
  const Step step = under_way();
  const Tensors emitted = std::move(emitted_);
  emitted_.clear();
  timings.push_back(timing_);
  step_.reset();
  state = RequestState::idle;
  idle_since_ = now;
  steps = step.step + 1;
  const std::vector<RequestPtr> mates = std::exchange(mates_, {});
  for (std::size_t at = 0; at < mates.size(); ++at) mates[at]->step_was_shared(step.others[at].step, timing_, now);
  if (step.phase == "prefill" || step.phase == program::CHUNK) ends_.push_back(step.end());
  if (!queued_.empty()) {
    const auto [following, inputs] = std::move(queued_.front());
    queued_.pop_front();
    start(following, inputs, now);
  }
  const std::vector<Early> early = std::move(early_);
  early_.clear();
  for (const Early& each : early) deliver(each.peer, each.step, each.values, now, out);
  if (!emitted.empty()) out.push_back(Emitted{step, emitted});
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
  return step.step > step_->step && step.step - step_->step <= script_->most_steps &&
         early_.size() < script_->most_early;
}

}  // namespace partc::core
