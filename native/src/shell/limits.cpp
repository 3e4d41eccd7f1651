#include "shell/limits.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "format/dims.hpp"
#include "format/dtypes.hpp"
#include "format/facts.gen.hpp"
#include "format/text.hpp"

namespace partc::shell {
namespace {

constexpr std::uint64_t kHeaderBytes = 4096;
constexpr std::uint64_t kIntBytes = 9;                 // the longest msgpack integer
constexpr std::uint64_t kAddressBytes = 4 * 300 + 16;  // an address, which has at most 300 characters
constexpr std::uint64_t kResumptionBytes = 512;        // more than a `Resumption`, without its positions

std::uint64_t name_bytes(const std::string& name) { return 4 * characters(name); }

/** The sub-modules of all devices; graphs are cut alike for every placement, so no other placement runs more. */
std::set<std::string> pieces(const Role& role) {
  std::set<std::string> found;
  for (const auto& [device, running] : role.all_running) found.insert(running.begin(), running.end());
  for (const auto& [name, submodule] : role.submodules) found.insert(name);
  return found;
}

/** The longest list of `prepare` with its addresses, `prepared` or `commit`, bytes. */
std::uint64_t change_bytes(const Role& role) {
  const build::Model& model = role.model();
  std::uint64_t addresses = 0, longest = 0, names = 0, count = 0;
  for (const auto& [device, address] : role.placement.addresses) {
    addresses += name_bytes(device) + kAddressBytes;
    longest = std::max(longest, name_bytes(device));
  }
  for (const std::string& piece : pieces(role)) {
    names += name_bytes(piece);
    ++count;
  }
  const std::uint64_t holders = names + count * (longest + kIntBytes), held = names + count * 3 * kIntBytes;
  const std::uint64_t resumption = kResumptionBytes + build::most_chunks(model) * (model.max_batch + 1) * kIntBytes;
  return addresses + holders + model.max_requests * std::max(held, resumption);
}

std::uint64_t tensor_bytes(const build::TensorType& type, const Dims& dims) {
  return bytes_of(evaluate_shape(type.shape, dims), element_type(type.dtype)->bytes);
}

}  // namespace

std::uint64_t header_limit(const Role& role) {
  const build::Model& model = role.model();
  std::uint64_t names = 0;
  for (const auto& [name, type] : role.types) names += 64 + name_bytes(name);
  for (const auto& [name, size] : role.dims()) names += 64 + name_bytes(name);
  const std::uint64_t rows = 6 * std::max(model.max_batch, build::most_rows(model)) * kIntBytes;
  const std::uint64_t prompts = role.is_source() ? model.max_batch * model.max_sequence * kIntBytes : 0;
  return std::max({FRAME_LIMIT, kHeaderBytes + names + rows + prompts, kHeaderBytes + change_bytes(role)});
}

std::uint64_t frame_limit(const Role& role) {
  std::set<std::string> names;
  for (const auto& [name, submodule] : role.submodules)
    names.insert(submodule->inputs.begin(), submodule->inputs.end());
  if (role.is_source()) {
    for (const auto* ports : {&role.inputs, &role.outputs})
      for (const auto& [name, type] : *ports) names.insert(name);
  }
  Dims of_rows = role.dims();
  of_rows.set("batch", build::most_rows(role.model()));
  of_rows.set("sequence", 1);
  std::uint64_t limit = header_limit(role);
  for (const std::string& name : names) {
    const build::TensorType& type = role.types.at(name);
    limit = std::max({limit, tensor_bytes(type, role.dims()), tensor_bytes(type, of_rows)});
  }
  return limit;
}

}  // namespace partc::shell
