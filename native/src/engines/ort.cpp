#include "engines/ort.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "engines/huge_pages.hpp"
#include "engines/new_tensor.hpp"
#include "engines/shared_steps.hpp"
#include "errors.hpp"
#include "format/complaints.hpp"
#include "format/text.hpp"

namespace partc::engines {
namespace {

constexpr std::uint64_t kStaysBelowBytes = 1 << 20;  // smaller tensors have memory that stays bound
constexpr int kDeviceAllocator = 0, kDefaultMemory = 0;

const ort::MemoryInfo* main_memory() {
  static const auto found =
      ort::made<ort::MemoryInfoPtr>(ort::create_memory_info, "Cpu", kDeviceAllocator, 0, kDefaultMemory);
  return found.get();
}

/** Bind memory, as an input or as an output. */
template <class Bind>
void put(const Bind& into, ort::IoBinding* binding, const std::string& name, const ElementType& type,
         const Shape& shape, const std::byte* data) {
  const std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  const auto value = ort::made<ort::ValuePtr>(ort::create_tensor_with_data, main_memory(), const_cast<std::byte*>(data),
                                              bytes_of(shape, type.bytes), sizes.data(), sizes.size(), type.onnx);
  into(binding, name.c_str(), value.get());
}

/** The names of the inputs or outputs of a session. */
template <class Count, class Name>
std::set<std::string> names_of(const ort::Session* session, const Count& count, const Name& name) {
  ort::Allocator* allocator = nullptr;
  ort::get_allocator_with_default_options(&allocator);
  std::set<std::string> names;
  std::size_t size = 0;
  count(session, &size);
  for (std::size_t i = 0; i < size; ++i) {
    char* text = nullptr;
    name(session, i, allocator, &text);
    names.insert(text);
    ort::allocator_free(allocator, text);
  }
  return names;
}

void check_names(const std::string& what, const std::set<std::string>& found, const std::set<std::string>& expected,
                 const std::string& path) {
  std::vector<std::string> difference;
  std::ranges::set_symmetric_difference(found, expected, std::back_inserter(difference));
  if (difference.empty()) return;
  throw recompile("its " + what + " are not those of the build: " + joined(difference, ", "), path);
}

/** The file has exactly the inputs and outputs that the build says. */
void check_interface(const ort::Session* session, const build::Submodule& module, const std::string& path) {
  std::set<std::string> inputs(module.inputs.begin(), module.inputs.end());
  std::set<std::string> outputs(module.outputs.begin(), module.outputs.end());
  for (const build::State& state : module.states) {
    inputs.insert(state.input);
    outputs.insert(state.output);
  }
  check_names("inputs", names_of(session, ort::session_get_input_count, ort::session_get_input_name), inputs, path);
  check_names("outputs", names_of(session, ort::session_get_output_count, ort::session_get_output_name), outputs, path);
}

}  // namespace

OrtEngine::OrtEngine(BuildPtr build, std::string folder)
    : build_(std::move(build)),
      folder_(std::move(folder)),
      types_(types_of(*build_)),
      states_(build_->dims, build_->model.max_requests) {
  check_provider(build_->engine);
}

OrtEngine::Loaded* OrtEngine::find(const std::string& submodule) {
  const std::lock_guard lock(changing_);
  const auto found = loaded_.find(submodule);
  return found == loaded_.end() ? nullptr : &found->second;
}

void OrtEngine::load(const std::string& submodule) {
  if (find(submodule)) return;
  const build::Submodule& module = submodule_named(submodule, *build_);
  Loaded held{&module, load_session(build_->engine, folder_, module), {}};
  check_interface(held.session.inner.get(), module, folder_ + "/" + module.file);
  for (std::uint64_t slot = 0; slot < build_->model.max_requests; ++slot) {
    Slot& bound = held.slots.emplace_back();
    bound.binding = ort::made<ort::IoBindingPtr>(ort::create_io_binding, held.session.inner.get());
    bound.inputs.resize(module.inputs.size());
    bound.outputs.resize(module.outputs.size());
  }
  states_.add(module);
  const std::lock_guard lock(changing_);
  loaded_.emplace(submodule, std::move(held));
}

void OrtEngine::release(const std::string& submodule) {
  {
    const std::lock_guard lock(changing_);
    if (!loaded_.erase(submodule)) return;
  }
  states_.remove(submodule);
  give_back();
}

void OrtEngine::reset(std::uint64_t slot, const Dims& dims) {
  states_.reset(slot, dims);
  const std::lock_guard lock(changing_);
  for (auto& [name, held] : loaded_) held.slots.at(slot).has_states = false;
}

std::vector<Tensor> OrtEngine::run(const std::string& submodule, std::uint64_t slot, const std::vector<Tensor>& inputs,
                                   const Dims& dims) {
  Loaded* const held = find(submodule);
  if (!held) throw not_loaded(submodule);
  const build::Submodule& module = *held->module;
  Slot& bound = held->slots.at(slot);
  if (inputs.size() != module.inputs.size()) throw internal_error(submodule + ": another number of inputs");
  if (bound.shapes.empty() || dims != bound.dims) {
    bound.dims = dims;
    bound.shapes.clear();
    for (const std::string& name : module.outputs) bound.shapes.push_back(evaluate_shape(types_.at(name).shape, dims));
  }
  std::vector<Tensor> outputs;
  outputs.reserve(module.outputs.size());
  try {
    if (!bound.has_states) bind_states(module, slot, bound);
    for (std::size_t i = 0; i < inputs.size(); ++i) put_input(bound, module.inputs[i], bound.inputs[i], inputs[i]);
    for (std::size_t i = 0; i < module.outputs.size(); ++i)
      outputs.push_back(take_output(bound, module.outputs[i], bound.outputs[i], bound.shapes[i]));
    ort::run_with_binding(held->session.inner.get(), nullptr, bound.binding.get());
  } catch (const ort::Failure& failure) {
    throw run_error(submodule + " failed in onnxruntime: Error in execution: " + failure.message, module.file,
                    kRecompile);
  }
  return outputs;
}

/** One slot after the other. */
std::vector<Tensor> OrtEngine::run_shared(const std::string& submodule, const Slots& slots,
                                          const std::vector<Tensor>& inputs, const Dims& dims) {
  const Loaded* const held = find(submodule);
  if (!held) throw not_loaded(submodule);
  return run_apart(*this, *held->module, types_, slots, inputs, dims);
}

Tensor OrtEngine::read_rows(const std::string& submodule, std::uint64_t slot, const std::string& state,
                            std::uint64_t row, std::uint64_t begin, std::uint64_t end) {
  return states_.read(submodule, slot, state, row, begin, end);
}

void OrtEngine::write_rows(const std::string& submodule, std::uint64_t slot, const std::string& state,
                           std::uint64_t row, std::uint64_t begin, const Tensor& rows) {
  states_.write(submodule, slot, state, row, begin, rows);
}

void OrtEngine::bind_states(const build::Submodule& module, std::uint64_t slot, Slot& bound) const {
  for (const StateView& state : states_.of(module.name, slot)) {
    const ElementType& type = *element_type(state.declared->dtype);
    put(ort::bind_input, bound.binding.get(), state.declared->input, type, state.sizes, state.data);
    put(ort::bind_output, bound.binding.get(), state.declared->output, type, state.sizes, state.data);
  }
  bound.has_states = true;
}

void OrtEngine::put_input(Slot& bound, const std::string& name, Input& mine, const Tensor& array) const {
  const bool is_small = array.bytes.size < kStaysBelowBytes;
  if (is_small && mine.type == array.type && mine.shape == array.shape) {
    std::memcpy(mine.copy.data(), array.bytes.data, array.bytes.size);
    return;
  }
  mine = {is_small ? array.type : nullptr, array.shape, {}, is_small ? Tensor{} : array};
  if (is_small) mine.copy.assign(array.bytes.data, array.bytes.data + array.bytes.size);
  const std::byte* data = is_small ? mine.copy.data() : array.bytes.data;
  // Bits of bfloat16 travel as what holds them.
  const ElementType& declared = *element_type(types_.at(name).dtype);
  const ElementType& type = declared.name == "bfloat16" ? declared : *array.type;
  put(ort::bind_input, bound.binding.get(), name, type, mine.shape, data);
}

Tensor OrtEngine::take_output(Slot& bound, const std::string& name, Output& mine, const Shape& shape) const {
  const ElementType& type = *element_type(types_.at(name).dtype);
  const std::uint64_t bytes = bytes_of(shape, type.bytes);
  if (!mine.block || mine.shape != shape || mine.block->is_lent.load(std::memory_order_acquire)) {
    mine = {shape, std::make_shared<Block>(bytes)};
    put(ort::bind_output, bound.binding.get(), name, type, shape, mine.block->memory.get());
  }
  mine.block->is_lent.store(true, std::memory_order_relaxed);
  const std::byte* data = mine.block->memory.get();
  /** Keeps the block, and tells it when nobody has the tensor any more. */
  struct Lent {
    std::shared_ptr<Block> block;
    explicit Lent(std::shared_ptr<Block> lent) : block(std::move(lent)) {}
    Lent(const Lent&) = delete;
    ~Lent() { block->is_lent.store(false, std::memory_order_release); }
  };
  auto owner = std::make_shared<Lent>(bytes < kStaysBelowBytes ? mine.block : std::exchange(mine.block, nullptr));
  return {&type, shape, {std::move(owner), data, bytes}};
}

}  // namespace partc::engines
