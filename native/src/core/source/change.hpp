// A change of placement that is under way, and what the client is told that asked for it (…/core/source/change.py).
#pragma once

#include <optional>
#include <string>

#include "core/actions.hpp"
#include "core/liveness.hpp"

namespace partc::core {

/// A change that is under way.
struct Change {
  /// The role of the source.
  RolePtr role;
  /// Participant → its incarnation, and its last sign of life.
  Map<std::string, std::uint64_t> asked;
  bool is_loss = false;
  std::optional<Wish> wish;
  Map<std::string, Progress> heard;
  Map<std::string, messages::Prepared> prepared;
};

/// Tell the client that its placement is in force; `steps` were computed again for that.
void placed(const Adopt& adopt, std::uint64_t steps, double now, Actions& out);

/// Tell the client that its placement will not be in force.
Send refusal(const Wish& wish, const Error& error);
/// The text of a placement's programs, which tell one placement from another whatever its epoch.
std::string text_of_ring(const placement::Placement& placement);

}  // namespace partc::core
