// The steps of a prompt where code exists for certain numbers of rows only (partc/format/prompt_steps.py).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace partc {

/// Rows of the steps that there is code for, smallest first, each with its cost.
using StepSizes = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

/// The rows of each step of a prompt of `width` tokens, the most first. `sizes`: not empty.
std::vector<std::uint64_t> steps_of(std::uint64_t width, const StepSizes& sizes);

/// A bound on the steps of prompts of up to `width` tokens.
std::uint64_t most_steps(std::uint64_t width, const StepSizes& sizes);

}  // namespace partc
