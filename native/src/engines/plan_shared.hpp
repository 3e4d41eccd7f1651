/** Calls of kernels for steps that requests share, made of those of two functions of a kernel plan.

`partc/runtime/engines/plan_shared.py` says why: kernels that take states are called once for each request, on its row,
as the function of one sequence calls them; all others once for all.
*/
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engines/plan_frame.hpp"

namespace partc::engines {

/** Numbers of parameters, from `begin` to before `end`. */
struct Range {
  std::uint64_t begin, end;

  bool contains(std::uint64_t number) const { return begin <= number && number < end; }
};

/** The calls of a step of `count` requests; O(calls × count).

`one` is the function of one sequence and one token, `many` of `count` sequences, `states` the parameters that are
states. None where the calls of the two do not correspond, or a row would lie where kernels do not take it.
*/
std::optional<std::vector<KernelUse>> shared_calls(const kernel_plan::KernelPlan& plan,
                                                   const kernel_plan::KernelFunction& one,
                                                   const kernel_plan::KernelFunction& many, const Range& states,
                                                   std::uint64_t count);

}  // namespace partc::engines
