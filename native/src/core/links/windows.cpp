#include "core/links/windows.hpp"

#include <algorithm>

#include "core/step.hpp"

namespace partc::core {
namespace {

constexpr std::uint64_t SPARE_FRAMES = 64;

/// All steps that are under way at once of every request and a prompt in parts, and some.
template <class Messages>
std::uint64_t window(const Role& role, const std::string& peer, Messages messages) {
  std::uint64_t most = 1;
  for (const auto& [phase, items] : role.programs) {
    std::uint64_t count = 0;
    for (const program::Instruction& item : items) {
      for (const program::Message& message : messages(item)) count += message.device == peer;
    }
    most = std::max(most, count);
  }
  const std::uint64_t steps = (MOST_FORCED + build::most_chunks(role.model())) * role.model().max_requests;
  return ACK_EVERY + steps * most + SPARE_FRAMES;
}

}  // namespace

std::uint64_t out_window(const Role& role, const std::string& peer) { return window(role, peer, program::sends); }
std::uint64_t in_window(const Role& role, const std::string& peer) { return window(role, peer, program::awaits); }

}  // namespace partc::core
