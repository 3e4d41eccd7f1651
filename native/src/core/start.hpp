// The start of a device: facts that the build does not know (partc/runtime/core/start.py).
#pragma once

#include <string>
#include <vector>

#include "core/liveness.hpp"
#include "core/step.hpp"
#include "format/placement.hpp"

namespace partc::core {

/// Facts about a device, for whoever connects.
using Info = Map<std::string, Fact>;

/// Facts about a device's process that the build does not know.
struct Start {
  /// 64 random bits.
  std::uint64_t incarnation = 0;
  /// Lowest number of a request at the source; its clock in milliseconds, so that numbers grow over restarts.
  std::uint64_t first_request = 0;
  /// The shortest time without progress after which a peer counts as gone, seconds.
  double patience_s = LEAST_PATIENCE_S;
  /// The time that requests wait for a device that was lost, seconds; 0: they end at once.
  double rejoin_s = 0.0;
  /// The time that a request waits for its client to come back, seconds; 0: it is cancelled at once.
  double linger_s = 0.0;
  /// At the source: placements that do without a device.
  std::vector<placement::Placement> contingencies;
  /// Facts for everyone who connects.
  Info info;
};

}  // namespace partc::core
