// The parts of a device, and what concerns all of them (…/core/device/parts.py).
#pragma once

#include <memory>
#include <vector>

#include "core/device/early.hpp"
#include "core/device/journal.hpp"
#include "core/device/preparation.hpp"
#include "core/device/vitals.hpp"
#include "core/source/source.hpp"
#include "core/start.hpp"

namespace partc::core {

/// The parts of one device.
struct Parts {
  Parts(RolePtr role, const Start& start, double now);
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  RolePtr role;
  Links links;
  Membership membership;
  Requests requests;
  Monitor monitor;
  Journal journal;
  Transfer transfer;
  Preparation preparation;
  Early early;
  /// On the source alone.
  std::unique_ptr<Source> source;

  /// Find out whether the ring stands, as far as this device sees it.
  void look(double now, Actions& out);
  /// The state of this device, as the answer to `ping`.
  messages::Pong pong(std::uint64_t token) const;
  /// A placement is in force.
  void adopt(RolePtr to, const messages::Commit& commit, double now, Actions& out);
  /// The message about the times of a request.
  Send timings(std::uint64_t number, const std::vector<Timing>& steps) const;
};

}  // namespace partc::core
