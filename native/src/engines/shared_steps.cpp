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

/** A tensor as what lies before an axis sees it: `count` blocks, each with the bytes of all indices of the axis. */
struct Blocks {
  std::uint64_t count = 1, bytes = 0;

  Blocks(const Tensor& tensor, std::size_t axis) {
    for (std::size_t at = 0; at < axis; ++at) count *= tensor.shape[at];
    bytes = count ? tensor.bytes.size / count : 0;
  }
};

/** Some of the rows of a value, which has as many as there are requests; all of a value that is the same for all. */
Tensor some_rows(const Tensor& whole, std::optional<std::size_t> axis, std::uint64_t begin, std::uint64_t end,
                 std::uint64_t requests) {
  if (!axis) return whole;
  const Blocks blocks(whole, *axis);
  const std::uint64_t row = blocks.bytes / requests;
  Tensor part{whole.type, whole.shape, {}};
  part.shape[*axis] = whole.shape[*axis] / requests * (end - begin);
  if (blocks.count == 1) {
    part.bytes = whole.bytes.part(begin * row, end * row);
    return part;
  }
  std::string bytes;
  for (std::uint64_t at = 0; at < blocks.count; ++at)
    bytes += whole.bytes.text().substr(at * blocks.bytes + begin * row, (end - begin) * row);
  part.bytes = Frame::copy(bytes);
  return part;
}

Tensor joined_rows(const std::vector<Tensor>& parts, std::optional<std::size_t> axis) {
  if (!axis) return parts.front();
  Tensor whole{parts.front().type, parts.front().shape, {}};
  std::string bytes;
  for (std::uint64_t at = 0; at < Blocks(parts.front(), *axis).count; ++at) {
    for (const Tensor& part : parts) {
      const std::uint64_t own = Blocks(part, *axis).bytes;
      bytes += part.bytes.text().substr(at * own, own);
    }
  }
  whole.shape[*axis] = 0;
  for (const Tensor& part : parts) whole.shape[*axis] += part.shape[*axis];
  whole.bytes = Frame::copy(bytes);
  return whole;
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
