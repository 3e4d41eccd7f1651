#include "engines/shared_steps.hpp"

#include <algorithm>
#include <optional>

namespace partc::engines {
namespace {

/** The axis of a value along which the sequences of a step lie; none: it is the same for all. */
std::optional<std::size_t> row_axis(const build::TensorType& type) {
  for (std::size_t axis = 0; axis < type.shape.size(); ++axis)
    if (symbols(type.shape[axis]).contains("batch")) return axis;
  return {};
}

/** Some of the rows of a value, which has as many as there are requests; all of a value that is the same for all. */
Tensor some_rows(const Tensor& whole, std::optional<std::size_t> axis, std::uint64_t begin, std::uint64_t end,
                 std::uint64_t requests) {
  if (!axis) return whole;
  const std::uint64_t each = whole.shape[*axis] / requests;
  return part_of(whole, *axis, begin * each, end * each);
}

Tensor joined_rows(const std::vector<Tensor>& parts, std::optional<std::size_t> axis) {
  return axis ? joined_tensors(parts, *axis) : parts.front();
}

}  // namespace

std::vector<Tensor> run_in_groups(const build::Submodule& module, const Types& types,
                                  const std::vector<std::uint64_t>& groups, const Slots& slots,
                                  const std::vector<Tensor>& inputs, const RunGroup& run) {
  if (groups.size() == 1) return run(slots, inputs);
  std::vector<std::vector<Tensor>> made(module.outputs.size());  // of each output, the parts
  std::uint64_t begin = 0;
  for (const std::uint64_t size : groups) {
    const auto first = slots.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector<Tensor> given;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      given.push_back(some_rows(inputs[i], row_axis(types.at(module.inputs[i])), begin, begin + size, slots.size()));
    std::vector<Tensor> outputs = run({first, first + static_cast<std::ptrdiff_t>(size)}, given);
    for (std::size_t i = 0; i < outputs.size(); ++i) made[i].push_back(std::move(outputs[i]));
    begin += size;
  }
  std::vector<Tensor> found;
  for (std::size_t i = 0; i < made.size(); ++i)
    found.push_back(joined_rows(made[i], row_axis(types.at(module.outputs[i]))));
  return found;
}

std::vector<Tensor> run_apart(Engine& engine, const build::Submodule& module, const Types& types, const Slots& slots,
                              const std::vector<Tensor>& inputs, const Dims& dims) {
  Dims own = dims;
  own.set("batch", 1);
  const std::vector<std::uint64_t> groups(slots.size(), 1);
  return run_in_groups(module, types, groups, slots, inputs, [&](const Slots& few, const std::vector<Tensor>& given) {
    return engine.run(module.name, few.front(), given, own);
  });
}

}  // namespace partc::engines
