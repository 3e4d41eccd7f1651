#include "engines/gpu/engine.hpp"

#include <algorithm>
#include <utility>

#include "engines/plan_checks.hpp"
#include "engines/plan_library.hpp"
#include "engines/shared_steps.hpp"
#include "errors.hpp"
#include "format/local_file.hpp"

namespace partc::engines::gpu {
namespace {

std::unique_ptr<const Driver> opened(const std::string& provider) {
  try {
    return open_driver(provider);
  } catch (const DriverError& error) {
    throw bundle_error("no GPU: " + error.text, "engine.provider",
                       "run the runner on a machine with a GPU and its driver, or compile with `provider: cpu`");
  }
}

template <class Tensor>
std::uint64_t bytes_of_tensor(const Tensor& tensor) {
  return bytes_of(tensor.shape, element_type(tensor.dtype)->bytes);
}

}  // namespace

GpuEngine::GpuEngine(BuildPtr build, std::string folder)
    : build_(std::move(build)),
      folder_(std::move(folder)),
      driver_(opened(build_->engine.provider)),
      entries_(*build_),
      weights_(folder_, [this](const auto& path, const auto& entries) { return read_weights(path, entries); }) {}

const build::Submodule& GpuEngine::loaded(const std::string& name) const {
  const std::lock_guard lock(changing_);
  const auto found = modules_.find(name);
  if (found == modules_.end()) throw not_loaded(name);
  return *found->second;
}

/** Sub-modules of one file read it once. */
void GpuEngine::load(const std::string& submodule) {
  if (modules_.contains(submodule)) return;
  const build::Submodule& module = submodule_named(submodule, *build_);
  const auto known = libraries_.find(module.file);
  const auto library =
      known == libraries_.end() ? std::make_shared<GpuLibrary>(*driver_, *build_, folder_, module.file) : known->second;
  const build::LibraryFunctions& functions = build_->engine.library->functions.at(submodule);
  const auto weights = weight_tensors(weights_.entries(module, functions.weights));
  const std::string where = folder_ + "/" + plan_file(module.file);
  for (const Entry& entry : functions.entries) check_function(entries_, module, entry, library->plan(), weights, where);
  weights_.add(module, functions.weights);
  std::vector<std::vector<Buffer>> slots(build_->model.max_requests);
  for (std::vector<Buffer>& states : slots)
    for (const build::State& state : module.states)
      states.push_back(allocate(bytes_of_tensor(fixed(build::buffer_of(state), build_->dims))));
  const std::lock_guard lock(changing_);
  libraries_[module.file] = library;
  for (std::uint64_t slot = 0; slot < slots.size(); ++slot) states_[{submodule, slot}] = std::move(slots[slot]);
  modules_[submodule] = &module;
}

void GpuEngine::release(const std::string& submodule) {
  const std::lock_guard lock(changing_);
  const auto found = modules_.find(submodule);
  if (found == modules_.end()) return;
  const std::string file = found->second->file;
  modules_.erase(found);
  std::erase_if(calls_, [&](const auto& item) { return std::get<0>(item.first) == submodule; });
  std::erase_if(inputs_, [&](const auto& item) { return item.first.first == submodule; });
  std::erase_if(states_, [&](const auto& item) { return item.first.first == submodule; });
  weights_.remove(submodule);
  if (std::ranges::none_of(modules_, [&](const auto& item) { return item.second->file == file; }))
    libraries_.erase(file);
}

/** What fails in the driver fails the request. */
template <class Act>
auto GpuEngine::guarded(const build::Submodule& module, Act act) const {
  try {
    return act();
  } catch (const DriverError& error) {
    throw run_error(module.name + " failed on " + driver_->name() + ": " + error.text, module.file,
                    "end other programs, or compile again");
  }
}

/** States have their largest sizes, whatever the request. */
void GpuEngine::reset(std::uint64_t slot, const Dims&) {
  const std::lock_guard lock(changing_);
  for (const auto& [name, module] : modules_) {
    guarded(*module, [&, &name = name] {
      for (const Buffer& state : states_.at({name, slot})) driver_->clear(*state);
    });
  }
}

std::vector<Tensor> GpuEngine::run(const std::string& submodule, std::uint64_t slot, const std::vector<Tensor>& inputs,
                                   const Dims& dims) {
  const build::Submodule& module = loaded(submodule);
  const Sizes& sizes = entries_.of(module, dims);
  if (inputs.size() != sizes.inputs.size()) throw internal_error(submodule + ": another number of inputs");
  return guarded(module, [&] { return step(module, prepared(module, slot, sizes.entry), sizes, inputs); });
}

/** One slot after the other. */
std::vector<Tensor> GpuEngine::run_shared(const std::string& submodule, const Slots& slots,
                                          const std::vector<Tensor>& inputs, const Dims& dims) {
  return run_apart(*this, loaded(submodule), entries_.types(), slots, inputs, dims);
}

std::vector<Tensor> GpuEngine::step(const build::Submodule& module, const Prepared& prepared, const Sizes& sizes,
                                    const std::vector<Tensor>& inputs) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Copied& input = prepared.inputs[i];
    check_input(module.inputs[i], inputs[i], *sizes.inputs[i].type, sizes.inputs[i].shape);
    sizes.inputs[i].fill(input.here.data(), inputs[i]);
    driver_->write(*input.there, 0, input.here.data(), input.here.bytes());
  }
  prepared.call.launches->start();
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < sizes.outputs.size(); ++i) {
    const Copied& output = prepared.call.outputs[i];
    driver_->read(*output.there, 0, output.here.data(), output.here.bytes());
    outputs.push_back(sizes.outputs[i].cut(output.here.data()));
  }
  return outputs;
}

Tensor GpuEngine::read_rows(const std::string& submodule, std::uint64_t slot, const std::string& state,
                            std::uint64_t row, std::uint64_t begin, std::uint64_t end) {
  const build::Submodule& module = loaded(submodule);
  const std::uint64_t count = end < begin ? 0 : end - begin;
  const Window rows = window(module, slot, state, row, begin, count);
  guarded(module, [&] {
    for (std::size_t head = 0; count && head < rows.runs.offsets.size(); ++head)
      driver_->read(*rows.buffer, rows.runs.offsets[head], rows.copy.data() + head * rows.runs.bytes, rows.runs.bytes);
  });
  return rows_of(rows.view, 0, 0, count);
}

void GpuEngine::write_rows(const std::string& submodule, std::uint64_t slot, const std::string& state,
                           std::uint64_t row, std::uint64_t begin, const Tensor& rows) {
  const build::Submodule& module = loaded(submodule);
  const std::uint64_t count = rows.shape.empty() ? 0 : rows.shape[0];
  const Window held = window(module, slot, state, row, begin, count);
  put_rows(held.view, 0, 0, rows);
  guarded(module, [&] {
    for (std::size_t head = 0; count && head < held.runs.offsets.size(); ++head)
      driver_->write(*held.buffer, held.runs.offsets[head], held.copy.data() + head * held.runs.bytes, held.runs.bytes);
  });
}

/** Everything for calls of one function by one slot. */
GpuEngine::Prepared GpuEngine::prepared(const build::Submodule& module, std::uint64_t slot, const Entry& entry) {
  const std::lock_guard lock(changing_);
  const std::vector<Copied>& inputs = inputs_of(module, entry);
  const CallKey key{module.name, slot, entry};
  if (const auto found = calls_.find(key); found != calls_.end()) return {found->second, inputs};
  std::vector<Buffer> parameters;
  for (const Copied& input : inputs) parameters.push_back(input.there);
  for (const Buffer& state : states_.at({module.name, slot})) parameters.push_back(state);
  for (const Buffer& weight : weights_.of(module.name)) parameters.push_back(weight);
  const GpuLibrary& library = *libraries_.at(module.file);
  const auto& function = library.plan().functions.at(function_name(module.name, entry));
  Call call{library.prepare(function, parameters), {}};
  for (const kernel_plan::KernelOutput& output : function.outputs) {
    const std::uint64_t bytes = bytes_of_tensor(output);
    call.outputs.push_back({Pages(bytes), library.place(output.place, bytes, parameters)});
  }
  return {calls_.emplace(key, std::move(call)).first->second, inputs};
}

const std::vector<GpuEngine::Copied>& GpuEngine::inputs_of(const build::Submodule& module, const Entry& entry) {
  if (const auto found = inputs_.find({module.name, entry}); found != inputs_.end()) return found->second;
  const Dims sizes = entries_.sizes(module, entry);
  std::vector<Copied> inputs;
  for (const std::string& name : module.inputs) {
    const std::uint64_t bytes = bytes_of_tensor(fixed(entries_.types().at(name), sizes));
    inputs.push_back({Pages(bytes), allocate(bytes)});
  }
  return inputs_[{module.name, entry}] = std::move(inputs);
}

GpuEngine::Window GpuEngine::window(const build::Submodule& module, std::uint64_t slot, const std::string& state,
                                    std::uint64_t row, std::uint64_t begin, std::uint64_t count) const {
  const auto declared = std::ranges::find(module.states, state, &build::State::name);
  if (declared == module.states.end()) throw run_error("no state '" + state + "' is loaded", module.name, "", "bug");
  const kernel_plan::KernelTensor tensor = fixed(build::buffer_of(*declared), build_->dims);
  const std::uint64_t element_bytes = element_type(tensor.dtype)->bytes;
  Window found;
  found.runs = runs_of({&*declared, nullptr, tensor.shape, element_bytes}, row, begin, count);
  found.copy = Pages(found.runs.offsets.size() * found.runs.bytes);
  found.view = {&*declared, found.copy.data(), found.runs.sizes, element_bytes};
  const std::lock_guard lock(changing_);
  found.buffer = states_.at({module.name, slot})[static_cast<std::size_t>(declared - module.states.begin())];
  return found;
}

Buffer GpuEngine::allocate(std::uint64_t bytes) const {
  try {
    return driver_->allocate(std::max<std::uint64_t>(1, bytes));
  } catch (const DriverError& error) {
    throw bundle_error(driver_->name() + " has no " + std::to_string(bytes) + " bytes left: " + error.text, "",
                       "end other programs, or compile with a smaller max_sequence or fewer max_requests");
  }
}

/** Tensors of a file on the device, copied from its pages. */
std::vector<Buffer> GpuEngine::read_weights(const std::string& path,
                                            const std::vector<safetensors::Entry>& entries) const {
  return LocalFile(path).mapped([&](std::string_view content) {
    std::vector<Buffer> buffers;
    for (const safetensors::Entry& entry : entries) {
      buffers.push_back(allocate(entry.bytes));
      const auto* data = reinterpret_cast<const std::byte*>(content.data() + entry.offset);
      driver_->write(*buffers.back(), 0, data, entry.bytes);
    }
    return buffers;
  });
}

}  // namespace partc::engines::gpu
