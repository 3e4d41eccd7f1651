// Patience of the source with a step that does not end (…/core/source/patience.py).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/meter.hpp"
#include "core/source/job.hpp"

namespace partc::core {

/// Times that steps take, and the devices' signs of life.
class Patience {
 public:
  Patience(RolePtr role, double floor_s) : role_(std::move(role)), floor_s_(floor_s) {}

  /// Times of steps, while somebody watches.
  std::optional<Meter> pace;

  /// A step is over.
  void took(const std::string& phase, double seconds, std::uint64_t tokens);
  /// A device's loop is alive.
  void answered(const std::string& device, const messages::Pong& pong, double now) { heard_.set(device, {now, pong}); }
  /// Seconds that a request may stand still; requests in flight take turns on a device, and one that says that it computes
  /// is slow, but not gone.
  double of(const Job& job, std::size_t running, double now) const;
  /// The devices that have not answered lately, while the request stands still.
  Names silent(const Job& job, double now) const;
  /// About a request that stands still, naming the device that is to blame.
  Error stalled(const Job& job, double patience, double now) const;

 private:
  Map<std::string, messages::Pong> answers(const Job& job, double now) const;

  RolePtr role_;
  /// The shortest patience with a silent ring, seconds.
  double floor_s_;
  /// Phase → seconds of its slowest step.
  Map<std::string, double> slowest_;
  /// Device → when it last answered a ping, and how.
  Map<std::string, std::pair<double, messages::Pong>> heard_;
};

}  // namespace partc::core
