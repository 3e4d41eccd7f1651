// Token ids held against the vocabulary (partc/runtime/core/tokens.py).
#pragma once

#include <string>

#include "core/step.hpp"

namespace partc::core {

/// The largest int64, for models that do not give the size of their vocabulary.
inline constexpr std::uint64_t MOST_TOKENS = std::uint64_t{1} << 63;

/// Holds token ids against the vocabulary. Throws Error: naming the token and the limit.
void check_tokens(const Counts& tokens, const std::string& where, const build::Model& model);

}  // namespace partc::core
