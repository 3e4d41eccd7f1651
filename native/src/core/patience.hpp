// Patience of the source: with a step that does not end, and with devices that were lost (…/core/patience.py).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/job.hpp"
#include "core/watch.hpp"

namespace partc::core {

/// Times that steps take, and the devices' signs of life.
class Patience {
 public:
  Patience(RolePtr role, double floor_s) : role_(std::move(role)), floor_s_(floor_s) {}

  /// Times of steps, while somebody watches.
  std::optional<Meter> pace;

  /// A step is over.
  void took(const std::string& phase, double seconds);
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

/// Deadline for the end of an outage; never: nobody waits.
struct Wait {
  double limit_s = 0.0;
  Due since;

  Due ends() const { return since ? Due(*since + limit_s) : Due(); }
  bool is_over(double now) const { return since && now >= *ends(); }
};

/// The wait for devices that were lost and that no other placement does without.
struct Rejoin : Wait {
  Names devices;

  /// Devices were lost; the wait for earlier ones goes on.
  void begin(const Names& lost, double now);
  Error error() const;
};

/// (sender, receiver)
using LinkNames = std::pair<std::string, std::string>;

/// The wait for links between devices that are both there: a network that carries nothing one way may never heal.
struct Cut : Wait {
  std::vector<LinkNames> links;

  /// Note what is cut now; whether the wait begins.
  bool found(const std::vector<LinkNames>& cut, double now);
  Error error() const;
};

/// About a link between two devices that are both there.
Error not_reached(const std::string& sender, const std::string& receiver, double seconds);
/// About devices for which a complete ring waits.
Error not_joined(const Names& devices);
/// About a device that a request may have brought down.
Error lost_twice(const std::string& device);
/// A number as people write it.
std::string short_number(double number);

}  // namespace partc::core
