#include "stage/stage.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "core/device/sampling.hpp"
#include "core/tokens.hpp"
#include "engines/states.hpp"
#include "errors.hpp"
#include "format/complaints.hpp"
#include "format/files.hpp"
#include "format/match.hpp"
#include "format/text.hpp"

namespace partc::stage {
namespace {

constexpr std::uint64_t kRequest = 1;  // the core counts requests; here a slot has one at a time

bool is_later(const std::string& phase) { return phase == "decode" || phase == program::REPLAY; }

/** The role of a folder, with another number of threads. */
RolePtr role_with(const std::string& folder, std::uint64_t threads) {
  RolePtr role = load_role(folder);
  if (!std::ranges::count(role->ring(), role->device()))
    throw bundle_error("this device is idle: the placement gives it no work", folder);
  if (threads == 0) return role;
  build::Build build = *role->build;
  build.engine.threads = threads;
  return std::make_shared<const Role>(std::make_shared<const build::Build>(std::move(build)), role->placement);
}

/** Values that a step reads before an instruction writes them. */
program::Names unwritten(const program::Program& items) {
  std::set<std::string> written;
  program::Names found;
  for (const program::Instruction& item : items) {
    for (const std::string& name : program::reads(item))
      if (!written.contains(name)) add_once(found, name);
    for (const std::string& name : program::writes(item)) written.insert(name);
  }
  return found;
}

std::size_t to_compute(const program::Program& items) {
  return static_cast<std::size_t>(std::ranges::count_if(items, [](const program::Instruction& item) {
    return std::holds_alternative<program::Run>(item) || std::holds_alternative<program::Sample>(item);
  }));
}

/** Put values where the caller wants them. */
void hand_over(const Tensors& values, std::vector<Output>& outputs) {
  for (Output& output : outputs) {
    const Tensor* made = values.find(output.name);
    if (!made || output.is_made) continue;
    if (made->bytes.size > output.room.size()) throw internal_error(output.name + " is larger than its type");
    if (made->bytes.size) std::memcpy(output.room.data(), made->bytes.data, made->bytes.size);
    output.is_made = true;
  }
}

/** Token ids that a request brings are held against the vocabulary, as those are that come over the wire. */
void check_ids(const Tensor& tensor, const std::string& name, const build::Model& model) {
  core::Counts tokens;
  for (const std::int64_t token : tensor.elements<std::int64_t>()) {
    if (token < 0) throw misused("token " + std::to_string(token) + " is below 0", name, "token ids count from 0");
    tokens.push_back(static_cast<std::uint64_t>(token));
  }
  try {
    core::check_tokens(tokens, name, model);
  } catch (const Error& error) {
    throw misused(error.message, error.where);
  }
}

Tensor owned(const Tensor& tensor) { return {tensor.type, tensor.shape, Frame::copy(tensor.bytes.text())}; }

}  // namespace

Error misused(std::string message, std::string where, std::string hint) {
  return run_error(std::move(message), std::move(where), std::move(hint), "usage");
}

Stage::Stage(const std::string& folder, std::uint64_t threads) : role_(role_with(folder, threads)) {
  script_ = std::make_shared<const core::Script>(role_);
  verify_files(folder, role_->build->files, [](const std::string&) { return false; });
  engine_ = engines::make_engine(role_->build, folder);
  for (const std::string& name : role_->running) {
    engine_->load(name);
    for (const build::State& state : role_->submodules.at(name)->states) {
      const Shape sizes = evaluate_shape(state.shape, role_->dims());
      states_.push_back({name, &state, engines::row_sizes(state, sizes)});
    }
  }
  for (const auto& [phase, items] : role_->programs) ports_.set(phase, ports_of(phase));
  slots_.resize(role_->model().max_requests);
}

std::vector<Port> Stage::ports_of(const std::string& phase) const {
  const program::Program& items = role_->programs.at(phase);
  program::Names kept;
  if (is_later(phase)) kept = program::kept_by(role_->programs.at("prefill"));
  std::vector<Port> found;
  int message = -1, order = -1;
  const auto add = [&](const std::string& name, const std::string& peer, Direction direction, int number) {
    found.push_back({name, peer, direction, number, order, &role_->types.at(name)});
  };
  order = 0;
  for (const std::string& name : unwritten(items))
    if (role_->inputs.contains(name) && !std::ranges::count(kept, name)) add(name, "", Direction::given, -1);
  order = -1;
  for (const program::Instruction& item : items) {
    ++order;
    for (const program::Message& each : program::awaits(item)) {
      ++message;
      for (const std::string& name : each.values) add(name, each.device, Direction::received, message);
    }
    for (const program::Message& each : program::sends(item)) {
      ++message;
      for (const std::string& name : each.values) add(name, each.device, Direction::sent, message);
    }
    if (const auto* sample = std::get_if<program::Sample>(&item)) add(sample->logits, "", Direction::logits, -1);
    if (const auto* emit = std::get_if<program::Emit>(&item))
      for (const std::string& name : emit->values) add(name, "", Direction::emitted, -1);
  }
  return found;
}

const std::vector<Port>& Stage::ports(const std::string& phase) const {
  const std::vector<Port>* found = ports_.find(phase);
  if (found) return *found;
  program::Names known;
  for (const auto& [name, ports] : ports_) known.push_back(name);
  throw misused("there is no phase " + in_quotes(phase), "", "this stage has " + joined(known, ", "));
}

Dims Stage::dims_of(std::uint64_t batch, std::uint64_t sequence, const Dims& further) const {
  Dims dims;
  if (role_->dims().contains("batch")) dims.set("batch", batch);
  if (role_->dims().contains("sequence")) dims.set("sequence", sequence);
  for (const auto& [name, size] : further) dims.set(name, size);
  return dims;
}

Shape Stage::shape_of(const Asked& asked, const std::string& value) const {
  for (const Port& port : ports(asked.phase))
    if (port.name == value) return evaluate_shape(port.type->shape, asked.dims);
  throw misused("a step of " + asked.phase + " has no value " + in_quotes(value));
}

void Stage::reset(std::uint64_t slot, std::uint64_t batch, const Dims& further) {
  if (slot >= slots_.size())
    throw misused("there is no slot " + std::to_string(slot), "",
                  "slots are numbered from 0; this stage has " + std::to_string(slots_.size()));
  const build::Model& model = role_->model();
  if (batch < 1 || batch > model.max_batch)
    throw misused(std::to_string(batch) + " sequences; a request has 1 to " + std::to_string(model.max_batch));
  Dims dims = role_->dims();
  if (dims.contains("batch")) dims.set("batch", batch);
  for (const auto& [name, size] : further) {
    const std::uint64_t* most = dims.find(name);
    if (!most || size > *most)
      throw misused(name + " is " + std::to_string(size) + ", at most " + std::to_string(most ? *most : 0) +
                    " is planned for");
    dims.set(name, size);
  }
  const RunningPtr running = slots_[slot].running;
  for (Slot& each : slots_)
    if (running && each.running == running) each = {};  // a step that is shared has written into all of them
  engine_->reset(slot, dims);
  slots_[slot] = {batch, {}, {}};
}

Stage::Slot& Stage::begun(std::uint64_t slot) {
  if (slot < slots_.size() && slots_[slot].batch) return slots_[slot];
  throw misused("no request has begun in slot " + std::to_string(slot), "", "call partc_stage_reset first");
}

core::Step Stage::step_of(const Asked& asked) const {
  core::Step step;
  step.request = kRequest;
  step.slot = asked.slots.front();
  step.step = is_later(asked.phase) ? 1 : 0;
  step.phase = asked.phase;
  step.dims = asked.dims;
  step.position = asked.position;
  step.length = asked.length;
  const std::set<std::uint64_t> different(asked.slots.begin(), asked.slots.end());
  if (asked.slots.size() > 1 && different.size() == 1) step.further = asked.slots.size() - 1;
  for (std::size_t at = 1; different.size() > 1 && at < asked.slots.size(); ++at)
    step.others.push_back({kRequest + at, asked.slots[at], step.step, 0});
  if (different.size() > 1 && different.size() < asked.slots.size())
    throw misused("a slot has several rows of a step that requests share");
  if (step.step == 0) step.opening = messages::Opening{kRequest, asked.sampling.front()};
  try {
    core::check_step(step, *role_);
  } catch (const Error& error) {
    throw misused(error.message);
  }
  return step;
}

void Stage::check_outputs(const Asked& asked, const std::vector<Output>& outputs) const {
  const std::vector<Port>& all = ports(asked.phase);
  for (const Output& output : outputs) {
    const auto port =
        std::ranges::find_if(all, [&](const Port& each) { return each.name == output.name && !each.is_input(); });
    if (port == all.end()) throw misused("a step of " + asked.phase + " gives no " + in_quotes(output.name));
    const ElementType* type = element_type(port->type->dtype);
    const std::uint64_t bytes = bytes_of(evaluate_shape(port->type->shape, asked.dims), type->bytes);
    if (output.type == type && output.room.size() >= bytes) continue;
    throw misused(in_quotes(output.name) + " has " + std::to_string(bytes) + " bytes of " + std::string(type->name) +
                  ", and there is room for " + std::to_string(output.room.size()) + " of " +
                  std::string(output.type->name));
  }
}

void Stage::check_inputs(const Asked& asked, const Tensors& inputs, const RunningPtr& known) const {
  std::set<int> messages;
  const std::vector<Port>& all = ports(asked.phase);
  for (const auto& [name, tensor] : inputs) {
    const auto port = std::ranges::find_if(all, [&](const Port& each) { return each.name == name && each.is_input(); });
    if (port == all.end()) throw misused("a step of " + asked.phase + " takes no " + in_quotes(name));
    const ElementType* type = element_type(port->type->dtype);
    const std::uint64_t bytes = bytes_of(tensor.shape, type->bytes);
    if (tensor.type != type || tensor.bytes.size != bytes)
      throw misused(in_quotes(name) + " has " + std::to_string(bytes) + " bytes of " + std::string(type->name) +
                    ", and was given " + std::to_string(tensor.bytes.size) + " of " + std::string(tensor.type->name));
    if (name == INPUT_IDS || name == SOURCE_IDS) check_ids(tensor, name, role_->model());
    if (known && (port->message < 0 || known->came.contains(port->message)))
      throw misused(in_quotes(name) + " was given already");
    messages.insert(port->message);
  }
  for (const Port& port : all) {
    if (inputs.contains(port.name) || !port.is_input()) continue;
    if (port.message < 0 && !known)
      throw misused("a step of " + asked.phase + " begins with " + in_quotes(port.name) + ", which is missing");
    if (port.message >= 0 && messages.contains(port.message))
      throw misused(in_quotes(port.name) + " is missing: it comes in one message with what is given");
  }
}

/** The step under way that a call goes on with; null: none, and another may begin. */
Stage::RunningPtr Stage::known(const Asked& asked, const core::Step& step) {
  const RunningPtr found = begun(asked.slots.front()).running;
  const bool goes_on = found && found->execution.step.phase == step.phase && found->execution.step.same_as(step);
  const std::uint64_t batch = step.rows() > 1 ? 1 : core::size_or(step.dims, "batch", 1);
  for (const std::uint64_t slot : asked.slots) {
    const Slot& held = begun(slot);
    if (held.batch != batch)
      throw misused("the request in slot " + std::to_string(slot) + " has " + std::to_string(held.batch) +
                    " sequences, the step " + std::to_string(batch));
    if (goes_on || !held.running || held.running->to_compute == 0) continue;
    throw misused("the last step in slot " + std::to_string(slot) + " is not over", "",
                  "go on with it, or call partc_stage_reset");
  }
  return goes_on ? found : nullptr;
}

Stage::RunningPtr Stage::begin(const Asked& asked, const core::Step& step, const Tensors& inputs) {
  for (const std::uint64_t slot : asked.slots)
    if (const RunningPtr last = slots_[slot].running) end(*last);
  Tensors values = core::step_inputs(step, *role_);
  for (const auto& [name, tensor] : slots_[asked.slots.front()].kept) values.set(name, tensor);
  for (const auto& [name, tensor] : inputs)
    if (role_->inputs.contains(name)) values.set(name, tensor);
  std::vector<core::Row> rows;
  for (std::size_t at = 0; at < step.rows(); ++at) rows.push_back({asked.slots[at], asked.sampling[at]});
  const std::size_t left = to_compute(role_->programs.at(asked.phase));
  core::Execution execution(script_, step, std::move(rows), true, std::move(values), {}, false);
  const auto running = std::make_shared<Running>(Running{std::move(execution), left});
  for (const std::uint64_t slot : asked.slots) slots_[slot].running = running;
  return running;
}

/** The step is over: what it keeps stays, in memory of its own. */
void Stage::end(const Running& running) {
  for (Slot& slot : slots_) {
    if (slot.running.get() != &running) continue;
    if (running.execution.kept) {
      slot.kept.clear();
      for (const auto& [name, tensor] : *running.execution.kept) slot.kept.set(name, owned(tensor));
    }
    const RunningPtr last = std::exchange(slot.running, nullptr);
    if (last.use_count() == 1) return;
  }
}

/** Whether all messages of the step are there then. */
bool Stage::reaches_the_end(const Asked& asked, const Tensors& inputs, const RunningPtr& known) const {
  return std::ranges::all_of(ports(asked.phase), [&](const Port& port) {
    return port.direction != Direction::received || inputs.contains(port.name) ||
           (known && known->came.contains(port.message));
  });
}

std::optional<program::Message> Stage::step(const Asked& asked, Tensors inputs, std::vector<Output>& outputs) {
  const core::Step step = step_of(asked);
  check_outputs(asked, outputs);
  RunningPtr running = known(asked, step);
  check_inputs(asked, inputs, running);
  if (!reaches_the_end(asked, inputs, running))
    for (auto& [name, tensor] : inputs) tensor = owned(tensor);
  if (!running) running = begin(asked, step, inputs);
  try {
    deliver(*running, inputs);
    compute(*running, outputs);
  } catch (...) {
    for (const std::uint64_t slot : asked.slots) slots_[slot] = {};
    throw;
  }
  if (!running->execution.is_over()) return *running->execution.awaited();
  end(*running);
  return {};
}

/** Hand on the messages whose values are given. */
void Stage::deliver(Running& running, const Tensors& inputs) {
  core::Actions seen;
  Map<int, std::pair<std::string, Tensors>> messages;
  for (const Port& port : ports(running.execution.step.phase)) {
    if (port.direction != Direction::received || !inputs.contains(port.name)) continue;
    auto& [peer, values] = messages[port.message];
    peer = port.peer;
    values.set(port.name, inputs.at(port.name));
  }
  for (const auto& [number, message] : messages) {
    running.execution.deliver(message.first, running.execution.step, message.second, 0.0, seen);
    running.came.insert(number);
  }
}

void Stage::compute(Running& running, std::vector<Output>& outputs) {
  bool goes_on = true;
  while (goes_on) {
    core::Actions actions;
    running.execution.advance(true, actions);
    goes_on = false;
    for (core::Action& action : actions) goes_on = take(action, running, outputs) || goes_on;
  }
  hand_over(running.execution.emitted, outputs);
}

/** Do what the program asks for; whether it was a computation, behind which the program goes on. */
bool Stage::take(core::Action& action, Running& running, std::vector<Output>& outputs) {
  const auto* seen = std::get_if<core::Seen>(&action);
  if (seen && seen->peer == role_->device()) hand_over(seen->values, outputs);
  if (const auto* forward = std::get_if<core::Forward>(&action)) hand_over(forward->values, outputs);
  const auto* task = std::get_if<core::Compute>(&action);
  const auto* draw = std::get_if<core::Draw>(&action);
  if (!task && !draw) return false;
  running.execution.computed(task ? computed(*task) : core::drawn(*draw), 0.0);
  --running.to_compute;
  return true;
}

std::vector<Tensor> Stage::computed(const core::Compute& task) {
  if (task.others.empty()) return engine_->run(task.submodule, task.slot, task.inputs, task.dims);
  engines::Slots slots{task.slot};
  slots.insert(slots.end(), task.others.begin(), task.others.end());
  return engine_->run_shared(task.submodule, slots, task.inputs, task.dims);
}

Tensor Stage::read_rows(std::uint64_t slot, const HeldState& state, std::uint64_t row, std::uint64_t begin,
                        std::uint64_t end) {
  begun(slot);
  return engine_->read_rows(state.submodule, slot, state.declared->name, row, begin, end);
}

void Stage::write_rows(std::uint64_t slot, const HeldState& state, std::uint64_t row, std::uint64_t begin,
                       const Tensor& rows) {
  begun(slot);
  engine_->write_rows(state.submodule, slot, state.declared->name, row, begin, rows);
}

}  // namespace partc::stage
