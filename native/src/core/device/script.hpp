// The programs of a device, and what can be known of them before any request (…/core/device/script.py).
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/actions.hpp"

namespace partc::core {

/// What one instruction awaits, and the values that nothing after it uses, so that their memory can go.
struct Line {
  program::Instruction instruction;
  std::vector<program::Message> awaits;
  std::set<std::string> dead;
};

/// The programs of a device, and what can be known of them before any request.
struct Script {
  explicit Script(RolePtr role);

  RolePtr role;
  Map<std::string, std::vector<Line>> programs;
  /// Steps that may be known before the one under way is over, and messages that those bring at most.
  std::uint64_t most_steps = 0, most_early = 0;
};

using ScriptPtr = std::shared_ptr<const Script>;

}  // namespace partc::core
