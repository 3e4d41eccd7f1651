// The reader of kernels.json, and the rules of a plan, so that no plan reads or writes outside of its memory.
//
// The rules stand in a table in partc/format/kernel_plan_rules.py.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "format/kernel_plan.gen.hpp"

namespace partc::kernel_plan {

/// Kernel → its launches on a GPU, one after the other.
using Launches = Map<std::string, std::vector<KernelLaunch>>;

/// Reads and checks the text of a kernels.json. Throws Error: with the key, or the call, that is wrong, and the remedy.
KernelPlan parse_kernel_plan(std::string_view text, const std::string& where);

/// What breaks the rules, in words that name the place; empty: nothing does.
std::string plan_problem(const KernelPlan& plan);

/// Memory for the arena of any function: one step runs at a time.
std::uint64_t arena_bytes(const KernelPlan& plan);

/// Numbers of the parameters of a function that its kernels change in place.
std::set<std::uint64_t> changed(const KernelPlan& plan, const KernelFunction& function);

/// SHA-256 of `kernels` as they stand in kernels.json, and behind them of the launches that a GPU's plan has; 32 bytes,
/// which the library has, too.
std::string kernels_digest(const Map<std::string, Kernel>& kernels, const std::optional<Launches>& launches = {});

}  // namespace partc::kernel_plan
