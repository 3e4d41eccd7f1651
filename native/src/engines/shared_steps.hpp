/** Steps that requests share, computed in groups, or one request after the other (partc/runtime/engines/shared_steps.py). */
#pragma once

#include <functional>
#include <vector>

#include "engines/contract.hpp"
#include "engines/entries.hpp"

namespace partc::engines {

/** (slots, inputs) → outputs of some requests. */
using RunGroup = std::function<std::vector<Tensor>(const Slots& slots, const std::vector<Tensor>& inputs)>;

/** The outputs of a shared step that is computed in groups of so many requests. */
std::vector<Tensor> run_in_groups(const build::Submodule& module, const Types& types,
                                  const std::vector<std::uint64_t>& groups, const Slots& slots,
                                  const std::vector<Tensor>& inputs, const RunGroup& run);

/** The outputs of a shared step (`Engine::run_shared`), which are those of its requests alone; O(slots) runs. */
std::vector<Tensor> run_apart(Engine& engine, const build::Submodule& module, const Types& types, const Slots& slots,
                              const std::vector<Tensor>& inputs, const Dims& dims);

}  // namespace partc::engines
