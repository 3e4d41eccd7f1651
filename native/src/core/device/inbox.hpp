// Messages to a device that are neither values nor about links, taken to the part that they are for
// (…/core/device/inbox.py).
#pragma once

#include "core/device/parts.hpp"

namespace partc::core {

/// The messages of one device.
class Inbox {
 public:
  explicit Inbox(Parts& parts) : parts_(parts) {}

  /// Take a message that its sender may send (`rights`).
  void take(const Heard& heard, double now, Actions& out);
  /// Take a message to a device, which may be this one.
  void tell(const Tell& action, double now, Actions& out);

 private:
  void wanted(const Heard& heard, const messages::Want& want, Actions& out);
  void rows(const Heard& heard, const messages::Rows& rows, double now, Actions& out);
  void close(const messages::Close& close, Actions& out);
  void prepare(const Heard& heard, const messages::Prepare& message, double now, Actions& out);

  Parts& parts_;
};

}  // namespace partc::core
