// Rows of states on their way from one device to another, while the ring runs (partc/runtime/core/device/transfer.py).
#pragma once

#include <string>

#include "core/device/fetches.hpp"
#include "core/device/offers.hpp"

namespace partc::core {

/// The rows that this device fetches, those that others fetch from it, and the copies that it keeps.
class Transfer {
 public:
  /// `patience_s`: the time without an answer after which rows count as lost, seconds.
  Transfer(RolePtr role, Requests& requests, Links& links, double patience_s);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

 private:
  RolePtr role_;
  Copies copies_;

 public:
  Fetches fetches;
  Offers offers;

  /// Another placement is in force.
  void adopt(RolePtr role);
  /// A request is over.
  void close(std::uint64_t request);
  /// Fetch what a device needs for its next role, or the steps that have come since.
  void begin(const Role& role, const messages::Prepare& message, double now, Actions& out);
  /// The change has come into force, or will not be.
  void end();
  /// Take a part, of a copy or of what was asked for; others are ignored. Throws Error: it does not fit the state.
  void came(const std::string& peer, const messages::Rows& rows, const Frames& frames, double now, Actions& out);
};

}  // namespace partc::core
