// From logits to tokens: greedy, temperature, top-k, top-p (partc/runtime/core/device/sampling.py).
//
// Every draw is a pure function of (logits of the row, parameters, seed, row, token position): a counter-based generator
// (Philox) is keyed by the last three.
#pragma once

#include "core/commands.hpp"
#include "format/tensor.hpp"

namespace partc::core {

/// The results of a draw: the tokens and, where `sampling.likely` is not 0, the drawn token of every row and the
/// `likely - 1` most likely ones, int64[batch, likely], with the logarithms of their probabilities,
/// float64[batch, likely]: x - log sum exp, summed in float64 in the order of the vocabulary and rounded to float32.
///
/// Equal logits fall to the lowest id. In a shared step every row is the first one of a request of its own, and is drawn
/// as that alone; rows whose requests want fewer likely tokens than the one that wants most have zeros behind theirs.
std::vector<Tensor> drawn(const Draw& draw);

/// A number in [0, 1) that belongs to (seed, row, position).
double uniform(std::uint64_t seed, std::uint64_t row, std::uint64_t position);

}  // namespace partc::core
