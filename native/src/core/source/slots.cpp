#include "core/source/slots.hpp"

#include <algorithm>

namespace partc::core {
namespace {

/// Fewer rows are not worth another shape of the prompt's step.
constexpr std::uint64_t LEAST_REUSED = 16;

/// The number of tokens with which both begin; the last one of the prompt is left to compute.
std::uint64_t shared_by(const Counts& prompt, const Counts& tokens) {
  const std::size_t most = std::min(prompt.empty() ? 0 : prompt.size() - 1, tokens.size());
  std::size_t at = 0;
  while (at < most && prompt[at] == tokens[at]) ++at;
  return at;
}

}  // namespace

Slots::Slots(std::uint64_t count) {
  for (std::uint64_t slot = count; slot-- > 0;) free_.push_back(slot);
}

void Slots::give(std::uint64_t slot, std::uint64_t request, Counts tokens) {
  free_.push_back(slot);
  if (tokens.size() >= LEAST_REUSED) kept_.set(slot, {request, std::move(tokens)});
}

std::pair<std::uint64_t, std::optional<messages::Reuse>> Slots::take(const Counts& prompt) {
  std::optional<std::uint64_t> found;
  std::uint64_t most = 0;
  for (const auto& [slot, kept] : kept_) {
    const std::uint64_t shared = shared_by(prompt, kept.tokens);
    if (shared < LEAST_REUSED || 2 * shared < kept.tokens.size() || shared <= most) continue;
    found = slot;
    most = shared;
  }
  if (!found) {
    const auto empty =
        std::find_if(free_.rbegin(), free_.rend(), [&](std::uint64_t slot) { return !kept_.contains(slot); });
    found = empty != free_.rend() ? *empty : kept_.begin()->first;
  }
  std::erase(free_, *found);
  std::optional<messages::Reuse> reuse;
  if (const Kept* kept = kept_.find(*found)) {
    const std::uint64_t rows = shared_by(prompt, kept->tokens);
    if (rows >= LEAST_REUSED) reuse = messages::Reuse{kept->request, rows};
  }
  kept_.erase(*found);
  return {*found, reuse};
}

}  // namespace partc::core
