// Outages: devices and links that are down, how long a ring waits for them, and the errors that name them
// (…/core/links/outages.py).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/liveness.hpp"
#include "core/step.hpp"

namespace partc::core {

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
