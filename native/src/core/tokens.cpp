#include "core/tokens.hpp"

#include <algorithm>

namespace partc::core {

void check_tokens(const Counts& tokens, const std::string& where, const build::Model& model) {
  const std::uint64_t most = model.vocab_size.value_or(MOST_TOKENS);
  const std::uint64_t largest = tokens.empty() ? 0 : *std::ranges::max_element(tokens);
  if (largest < most) return;
  throw run_error("token " + std::to_string(largest) + " is not below vocab_size, " + std::to_string(most), where);
}

}  // namespace partc::core
