#include "engines/plan_shared.hpp"

#include <algorithm>

#include "engines/memory.hpp"
#include "format/dtypes.hpp"

namespace partc::engines {
namespace {

using kernel_plan::KernelCall;
using kernel_plan::KernelFunction;
using kernel_plan::KernelParameter;
using kernel_plan::KernelPlan;
using kernel_plan::Place;

bool is_state(const Place& place, const Range& states) {
  return place.room == "parameter" && states.contains(place.at);
}

/** Where a row begins in a tensor of many, bytes; none: it has none, or vectors would not be aligned there. */
std::optional<std::uint64_t> offset_of(const KernelParameter& one, const KernelParameter& many, std::uint64_t row,
                                       std::uint64_t count) {
  if (one.dtype != many.dtype) return {};
  if (one.shape == many.shape) return 0;
  if (one.shape.empty()) return {};
  Shape wide = one.shape;
  wide.front() *= count;
  if (many.shape != wide) return {};
  const bool is_number = one.shape.size() == 1 && one.shape.front() == 1;
  const std::uint64_t bytes = bytes_of(one.shape, element_type(one.dtype)->bytes);
  return is_number || bytes % kAlignment == 0 ? std::optional(row * bytes) : std::nullopt;
}

/** The operands of the kernel of one sequence, for a row of the many. */
std::optional<std::vector<Operand>> of_row(const KernelPlan& plan, const KernelCall& single, const KernelCall& wide,
                                           const Range& states, std::uint64_t row, std::uint64_t count) {
  const auto& ones = plan.kernels.at(single.kernel).parameters;
  const auto& manies = plan.kernels.at(wide.kernel).parameters;
  if (ones.size() != manies.size()) return {};
  std::vector<Operand> found;
  for (std::size_t i = 0; i < ones.size(); ++i) {
    const Place &place = single.arguments[i], &other = wide.arguments[i];
    if (is_state(place, states) || is_state(other, states)) {
      if (place != other) return {};
      found.push_back({place, {ones[i].dtype, ones[i].shape}, 0, row});
      continue;
    }
    const std::optional<std::uint64_t> offset = offset_of(ones[i], manies[i], row, count);
    if (!offset) return {};
    found.push_back({other, {ones[i].dtype, ones[i].shape}, *offset});
  }
  return found;
}

}  // namespace

std::optional<std::vector<KernelUse>> shared_calls(const KernelPlan& plan, const KernelFunction& one,
                                                   const KernelFunction& many, const Range& states,
                                                   std::uint64_t count) {
  const bool gives_states = std::ranges::any_of(many.outputs, [&](const kernel_plan::KernelOutput& output) {
    return is_state(output.place, states);
  });
  if (one.calls.size() != many.calls.size() || gives_states) return {};
  std::vector<KernelUse> uses;
  for (std::size_t i = 0; i < one.calls.size(); ++i) {
    const KernelCall &single = one.calls[i], &wide = many.calls[i];
    const auto takes_state = [&](const Place& place) { return is_state(place, states); };
    if (!std::ranges::any_of(single.arguments, takes_state) && !std::ranges::any_of(wide.arguments, takes_state)) {
      uses.push_back({wide.kernel, operands_of(plan, wide)});
      continue;
    }
    for (std::uint64_t row = 0; row < count; ++row) {
      auto operands = of_row(plan, single, wide, states, row, count);
      if (!operands) return {};
      uses.push_back({single.kernel, std::move(*operands)});
    }
  }
  return uses;
}

}  // namespace partc::engines
