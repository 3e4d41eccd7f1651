#include "engines/plan.hpp"

#include <algorithm>
#include <utility>

#include "engines/plan_checks.hpp"
#include "engines/plan_shared.hpp"
#include "engines/shared_steps.hpp"
#include "errors.hpp"

namespace partc::engines {
PlanEngine::PlanEngine(BuildPtr build, std::string folder)
    : build_(std::move(build)),
      folder_(std::move(folder)),
      entries_(*build_),
      weights_(folder_, [this](const auto& path, const auto& entries) { return mappings_.map(path, entries); }),
      states_(build_->dims, build_->model.max_requests) {}

const build::Submodule& PlanEngine::loaded(const std::string& name) const {
  const std::lock_guard lock(changing_);
  const auto found = modules_.find(name);
  if (found == modules_.end()) throw not_loaded(name);
  return *found->second;
}

/** Sub-modules of one library open it once. */
void PlanEngine::load(const std::string& submodule) {
  if (modules_.contains(submodule)) return;
  const build::Submodule& module = submodule_named(submodule, *build_);
  const auto known = libraries_.find(module.file);
  const auto library =
      known == libraries_.end() ? std::make_shared<Library>(*build_, folder_, module.file) : known->second;
  const build::LibraryFunctions& functions = build_->engine.library->functions.at(submodule);
  const auto weights = weight_tensors(weights_.entries(module, functions.weights));
  const std::string where = folder_ + "/" + plan_file(module.file);
  for (const Entry& entry : functions.entries) check_function(entries_, module, entry, library->plan(), weights, where);
  weights_.add(module, functions.weights);
  states_.add(module);
  const std::lock_guard lock(changing_);
  libraries_[module.file] = library;
  prepare_shared(module);
  modules_[submodule] = &module;
}

void PlanEngine::release(const std::string& submodule) {
  const std::lock_guard lock(changing_);
  const auto found = modules_.find(submodule);
  if (found == modules_.end()) return;
  const std::string file = found->second->file;
  modules_.erase(found);
  std::erase_if(calls_, [&](const auto& item) { return std::get<0>(item.first) == submodule; });
  const auto is_of_module = [&](const auto& item) { return item.first.first == submodule; };
  std::erase_if(inputs_, is_of_module);
  std::erase_if(shared_, is_of_module);
  std::erase_if(places_, is_of_module);
  states_.remove(submodule);
  weights_.remove(submodule);
  if (std::ranges::none_of(modules_, [&](const auto& item) { return item.second->file == file; }))
    libraries_.erase(file);
}

/** States have their largest sizes, whatever the request. */
void PlanEngine::reset(std::uint64_t slot, const Dims&) { states_.reset(slot, build_->dims); }

std::vector<Tensor> PlanEngine::run(const std::string& submodule, std::uint64_t slot, const std::vector<Tensor>& inputs,
                                    const Dims& dims) {
  const build::Submodule& module = loaded(submodule);
  const Sizes& sizes = entries_.of(module, dims);
  if (inputs.size() != sizes.inputs.size()) throw internal_error(submodule + ": another number of inputs");
  const auto& [frame, buffers] = prepared(module, slot, sizes.entry);
  return step(module, frame, buffers, sizes, inputs);
}

/** In steps of as many requests as there is code for. */
std::vector<Tensor> PlanEngine::run_shared(const std::string& submodule, const Slots& slots,
                                           const std::vector<Tensor>& inputs, const Dims& dims) {
  const build::Submodule& module = loaded(submodule);
  if (inputs.size() != module.inputs.size()) throw internal_error(submodule + ": another number of inputs");
  return run_in_groups(module, entries_.types(), groups(submodule, slots.size()), slots, inputs,
                       [&](const Slots& few, const std::vector<Tensor>& given) {
                         return run_together(module, few, given, dims);
                       });
}

/** How many requests each step has: the most that there is code for, then the most of the rest. */
std::vector<std::uint64_t> PlanEngine::groups(const std::string& submodule, std::uint64_t count) const {
  const std::lock_guard lock(changing_);
  std::vector<std::uint64_t> found;
  while (count) {
    std::uint64_t most = 1;
    for (const auto& [key, frame] : shared_) {
      const std::uint64_t requests = key.second.first;
      if (key.first == submodule && requests <= count) most = std::max(most, requests);
    }
    found.push_back(most);
    count -= most;
  }
  return found;
}

std::vector<Tensor> PlanEngine::run_together(const build::Submodule& module, const Slots& slots,
                                             const std::vector<Tensor>& inputs, const Dims& dims) {
  Dims own = dims;
  own.set("batch", slots.size());
  if (slots.size() == 1) return run(module.name, slots.front(), inputs, own);
  const Entry entry{slots.size(), 1};
  std::vector<std::vector<std::byte*>> states;
  std::unique_lock lock(changing_);
  Frame& frame = shared_.at({module.name, entry});
  const std::vector<Pages>& buffers = inputs_of(module, entry);
  for (const std::uint64_t slot : slots) states.push_back(places(module, slot));
  lock.unlock();
  frame.point(states, module.inputs.size());
  return step(module, frame, buffers, entries_.exactly(module, entry, own), inputs);
}

std::vector<Tensor> PlanEngine::step(const build::Submodule& module, const Frame& frame,
                                     const std::vector<Pages>& buffers, const Sizes& sizes,
                                     const std::vector<Tensor>& inputs) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_input(module.inputs[i], inputs[i], *sizes.inputs[i].type, sizes.inputs[i].shape);
    sizes.inputs[i].fill(buffers[i].data(), inputs[i]);
  }
  try {
    frame.run();
  } catch (const Error& error) {
    throw run_error(module.name + ": " + error.message, module.file, error.hint);
  }
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < sizes.outputs.size(); ++i) outputs.push_back(sizes.outputs[i].cut(frame.outputs()[i]));
  return outputs;
}

Tensor PlanEngine::read_rows(const std::string& submodule, std::uint64_t slot, const std::string& state,
                             std::uint64_t row, std::uint64_t begin, std::uint64_t end) {
  return states_.read(submodule, slot, state, row, begin, end);
}

void PlanEngine::write_rows(const std::string& submodule, std::uint64_t slot, const std::string& state,
                            std::uint64_t row, std::uint64_t begin, const Tensor& rows) {
  states_.write(submodule, slot, state, row, begin, rows);
}

/** Everything for calls of one function by one slot. */
PlanEngine::Prepared PlanEngine::prepared(const build::Submodule& module, std::uint64_t slot, const Entry& entry) {
  const std::lock_guard lock(changing_);
  const std::vector<Pages>& inputs = inputs_of(module, entry);
  const CallKey key{module.name, slot, entry};
  if (const auto found = calls_.find(key); found != calls_.end()) return {found->second, inputs};
  std::vector<std::byte*> parameters = parameters_of(module, inputs, places(module, slot));
  const Library& library = *libraries_.at(module.file);
  const auto& function = library.plan().functions.at(function_name(module.name, entry));
  return {calls_.emplace(key, Frame(library, function, std::move(parameters))).first->second, inputs};
}

/** Everything for steps of several requests, of the sizes that there is code for. */
void PlanEngine::prepare_shared(const build::Submodule& module) {
  const Library& library = *libraries_.at(module.file);
  const kernel_plan::KernelFunction* one = library.plan().functions.find(function_name(module.name, {1, 1}));
  if (one == nullptr || build::most_rows(build_->model) < 2) return;
  const std::uint64_t first = module.inputs.size();
  for (const Entry& entry : build_->engine.library->functions.at(module.name).entries) {
    if (entry.first == 1 || entry.second != 1) continue;
    const auto& many = library.plan().functions.at(function_name(module.name, entry));
    const Range states{first, first + module.states.size()};
    const auto uses = shared_calls(library.plan(), *one, many, states, entry.first);
    if (!uses) continue;
    const std::vector<std::byte*> nowhere(module.states.size(), nullptr);
    std::vector<std::byte*> parameters = parameters_of(module, inputs_of(module, entry), nowhere);
    shared_.emplace(InputKey{module.name, entry}, Frame(library, many, std::move(parameters), *uses));
  }
}

/** What a function takes: inputs, states and weights. */
std::vector<std::byte*> PlanEngine::parameters_of(const build::Submodule& module, const std::vector<Pages>& inputs,
                                                  const std::vector<std::byte*>& states) const {
  std::vector<std::byte*> found;
  for (const Pages& input : inputs) found.push_back(input.data());
  found.insert(found.end(), states.begin(), states.end());
  for (const auto& weight : weights_.of(module.name)) found.push_back(weight.get());
  return found;
}

/** Where the states of a slot lie, in the order of parameters; `reset` does not move them. */
const std::vector<std::byte*>& PlanEngine::places(const build::Submodule& module, std::uint64_t slot) {
  const auto [found, is_new] = places_.try_emplace({module.name, slot});
  if (is_new)
    for (const StateView& state : states_.of(module.name, slot)) found->second.push_back(state.data);
  return found->second;
}

const std::vector<Pages>& PlanEngine::inputs_of(const build::Submodule& module, const Entry& entry) {
  const auto [found, is_new] = inputs_.try_emplace({module.name, entry});
  if (!is_new) return found->second;
  const Dims sizes = entries_.sizes(module, entry);
  for (const std::string& name : module.inputs) {
    const kernel_plan::KernelTensor kind = fixed(entries_.types().at(name), sizes);
    found->second.emplace_back(bytes_of(kind.shape, element_type(kind.dtype)->bytes));
  }
  return found->second;
}

}  // namespace partc::engines
