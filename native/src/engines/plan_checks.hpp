/** A function of a kernel plan held against the build: who runs it trusts its types and sizes. */
#pragma once

#include <string>
#include <vector>

#include "engines/entries.hpp"
#include "format/kernel_plan_rules.hpp"
#include "format/safetensors.hpp"

namespace partc::engines {

/** Hold the function of an entry against the build; `where` is the file of the plan.

Throws a bundle error: they differ, or it changes something else than states.
*/
void check_function(const Entries& entries, const build::Submodule& module, const Entry& entry,
                    const kernel_plan::KernelPlan& plan, const std::vector<kernel_plan::KernelTensor>& weights,
                    const std::string& where);

/** A value of a build with the sizes of an entry, as a plan has it. */
kernel_plan::KernelTensor fixed(const build::TensorType& type, const Dims& sizes);

/** Weights of files, as a plan has them. */
std::vector<kernel_plan::KernelTensor> weight_tensors(const std::vector<safetensors::Entry>& entries);

}  // namespace partc::engines
