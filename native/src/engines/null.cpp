#include "engines/null.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <string_view>
#include <utility>

#include "engines/new_tensor.hpp"
#include "engines/shared_steps.hpp"
#include "errors.hpp"

namespace partc::engines {
namespace {

/** CRC-32 as zlib has it. */
std::uint32_t crc32(std::string_view bytes, std::uint32_t before = 0) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit) made[i] = made[i] & 1 ? 0xEDB88320u ^ made[i] >> 1 : made[i] >> 1;
    }
    return made;
  }();
  std::uint32_t mark = ~before;
  for (const char byte : bytes) mark = table[(mark ^ static_cast<unsigned char>(byte)) & 0xFF] ^ mark >> 8;
  return ~mark;
}

/** A whole number from 0 to 96 as an element. */
void put(std::byte* place, const ElementType& type, std::uint64_t number) {
  if (type.held == "float64") {
    const auto value = static_cast<double>(number);
    std::memcpy(place, &value, sizeof value);
  } else if (type.held == "float32") {
    const auto value = static_cast<float>(number);
    std::memcpy(place, &value, sizeof value);
  } else if (type.held == "float16") {
    unsigned power = 0;
    while (number >> power > 1) ++power;
    const auto bits = static_cast<std::uint16_t>(number ? (15 + power) << 10 | ((number << (10 - power)) & 0x3FF) : 0);
    std::memcpy(place, &bits, sizeof bits);
  } else {
    const std::uint64_t value = type.held == "bool" ? number != 0 : number;
    std::memcpy(place, &value, type.bytes);  // the least byte comes first
  }
}

/** The position of each sequence; empty where a sub-module has none. */
std::vector<std::uint64_t> positions_of(const build::Submodule& module, const std::vector<Tensor>& inputs) {
  const auto found = std::ranges::find(module.inputs, "position");
  if (found == module.inputs.end()) return {};
  const Tensor& array = inputs[static_cast<std::size_t>(found - module.inputs.begin())];
  std::vector<std::uint64_t> positions(array.bytes.size / sizeof(std::uint64_t));
  std::memcpy(positions.data(), array.bytes.data, positions.size() * sizeof(std::uint64_t));
  return positions;
}

/** A state as its sequences, each of blocks of rows: [sequences, blocks, rows, bytes of a row]. */
struct Rows {
  std::uint64_t sequences, blocks, rows, bytes;
  explicit Rows(const StateView& state) {
    const Shape& sizes = state.sizes;
    if (sizes.size() < 3) throw internal_error("a state without positions");
    sequences = sizes[0], rows = sizes[sizes.size() - 2], bytes = sizes.back() * state.element_bytes;
    blocks = std::accumulate(sizes.begin() + 1, sizes.end() - 2, std::uint64_t{1}, std::multiplies<>());
  }
};

/** The rows before `position`, as masks have it; without positions, everything. */
std::uint32_t seen(const StateView& state, const std::vector<std::uint64_t>& positions, std::uint32_t mark) {
  const auto text = [&](std::uint64_t at, std::uint64_t bytes) {
    return std::string_view(reinterpret_cast<const char*>(state.data) + at, bytes);
  };
  if (positions.empty()) return crc32(text(0, bytes_of(state.sizes, state.element_bytes)), mark);
  const Rows rows(state);
  for (std::uint64_t i = 0; i < std::min(rows.sequences, positions.size()); ++i)
    for (std::uint64_t block = 0; block < rows.blocks; ++block)
      mark = crc32(text((i * rows.blocks + block) * rows.rows * rows.bytes,
                        std::min(positions[i], rows.rows) * rows.bytes),
                   mark);
  return mark;
}

/** Mark the rows of a step; without positions, the first number of each sequence. */
void write(const StateView& state, const std::vector<std::uint64_t>& positions, std::uint64_t count,
           std::uint64_t number) {
  const ElementType& type = *element_type(state.declared->dtype);
  if (positions.empty()) {
    const std::uint64_t bytes = bytes_of(state.sizes, type.bytes) / std::max<std::uint64_t>(state.sizes[0], 1);
    for (std::uint64_t i = 0; bytes && i < state.sizes[0]; ++i) put(state.data + i * bytes, type, number);
    return;
  }
  const Rows rows(state);
  for (std::uint64_t i = 0; i < std::min(rows.sequences, positions.size()); ++i) {
    const std::uint64_t first = std::min(positions[i], rows.rows), last = std::min(first + count, rows.rows);
    for (std::uint64_t block = 0; block < rows.blocks; ++block) {
      std::byte* begin = state.data + (i * rows.blocks + block) * rows.rows * rows.bytes;
      for (std::byte* at = begin + first * rows.bytes; at < begin + last * rows.bytes; at += type.bytes)
        put(at, type, number);
    }
  }
}

}  // namespace

NullEngine::NullEngine(BuildPtr build)
    : build_(std::move(build)), types_(types_of(*build_)), states_(build_->dims, build_->model.max_requests) {}

const build::Submodule* NullEngine::find(const std::string& submodule) {
  const std::lock_guard lock(changing_);
  const auto found = loaded_.find(submodule);
  return found == loaded_.end() ? nullptr : found->second;
}

void NullEngine::load(const std::string& submodule) {
  if (find(submodule)) return;
  const build::Submodule& module = submodule_named(submodule, *build_);
  states_.add(module);
  const std::lock_guard lock(changing_);
  loaded_[submodule] = &module;
}

void NullEngine::release(const std::string& submodule) {
  const std::lock_guard lock(changing_);
  if (loaded_.erase(submodule)) states_.remove(submodule);
}

std::vector<Tensor> NullEngine::run(const std::string& submodule, std::uint64_t slot, const std::vector<Tensor>& inputs,
                                    const Dims& dims) {
  const build::Submodule* found = find(submodule);
  if (!found) throw not_loaded(submodule);
  const build::Submodule& module = *found;
  if (inputs.size() != module.inputs.size()) throw internal_error(submodule + ": another number of inputs");
  const std::vector<std::uint64_t> positions = positions_of(module, inputs);
  const std::vector<StateView> states = states_.of(submodule, slot);
  std::uint32_t mark = crc32(submodule);
  for (const Tensor& input : inputs) mark = crc32(input.bytes.text(), mark);
  const auto rows = [&](const StateView& state) {
    return build::is_rewritten(*state.declared) ? std::vector<std::uint64_t>{} : positions;
  };
  for (const StateView& state : states) mark = seen(state, rows(state), mark);
  const std::uint64_t* count = dims.find("sequence");
  for (const StateView& state : states) write(state, rows(state), count ? *count : 1, mark % 97);
  std::vector<Tensor> outputs;
  for (const std::string& name : module.outputs) outputs.push_back(filled(name, mark + outputs.size(), dims));
  return outputs;
}

/** One slot after the other. */
std::vector<Tensor> NullEngine::run_shared(const std::string& submodule, const Slots& slots,
                                           const std::vector<Tensor>& inputs, const Dims& dims) {
  const build::Submodule* found = find(submodule);
  if (!found) throw not_loaded(submodule);
  return run_apart(*this, *found, types_, slots, inputs, dims);
}

Tensor NullEngine::filled(const std::string& name, std::uint64_t mark, const Dims& dims) const {
  const build::TensorType& declared = types_.at(name);
  const ElementType& type = *element_type(declared.dtype);
  NewTensor array(type, evaluate_shape(declared.shape, dims));
  const std::uint64_t count = array.bytes() / type.bytes;
  for (std::uint64_t i = 0; i < count; ++i) put(array.data() + i * type.bytes, type, (i * 2654435761u + mark) % 97);
  return array.take();
}

}  // namespace partc::engines
