// The vitals of a device, which it reports while somebody watches (…/core/device/vitals.py).
#pragma once

#include <optional>

#include "core/actions.hpp"
#include "core/device/requests.hpp"
#include "core/links/links.hpp"
#include "core/meter.hpp"

namespace partc::core {

/// Report of a device about itself while somebody watches.
class Monitor {
 public:
  Monitor(Links& links, Requests& requests) : links_(links), requests_(requests) {}

  /// The engine has done what it works at; to be told before the requests are.
  void computed(double seconds);
  /// The source asks how this device is, or does not want to know any more.
  void sense(const messages::Sense& sense, Actions& out);
  /// The sensors have been read.
  void read(const messages::Readings& readings, Actions& out);
  /// Another placement is in force: times of the one before say nothing of it.
  void adopt();

 private:
  Links& links_;
  Requests& requests_;
  /// Times of its sub-modules; none: nobody watches.
  std::optional<Meter> meter_;
};

}  // namespace partc::core
