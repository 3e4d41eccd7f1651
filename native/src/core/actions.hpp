// Actions: all that one part of the core tells another, on its way through the device (partc/runtime/core/actions.py).
//
// The parts append actions and commands to a list; `Device` alone takes them to where they belong, once the list is
// complete. So nothing here calls back.
#pragma once

#include <tuple>

#include "core/commands.hpp"
#include "core/step.hpp"

namespace partc::core {

// -- links tell

/// Values from a device arrived, checked in every respect.
struct Delivered {
  std::string peer;
  Step step;
  Tensors values;
};
/// Any other message from a participant whose name is known.
struct Heard {
  std::string peer;
  Origin origin;
  messages::AnyMessage message;
  Frames frames;
};
/// This device may send to a peer now; requests below the number are over.
struct Linked {
  std::string peer;
  std::uint64_t first_request = 0;
};
/// A device has connected to this one, and is welcome.
struct Greeted {
  messages::Hello hello;
};
/// A connection to or from this participant is closed.
struct Lost {
  std::string peer;
  Origin origin;
};
/// This device and a peer do not fit together: another build, another placement, other keys.
struct Misfit {
  Error error;
};

// -- requests tell

/// Values go to a device.
struct Forward {
  std::string peer;
  Step step;
  Tensors values;
};
/// A step is over, and these are its values for the client.
struct Emitted {
  Step step;
  Tensors values;
};
/// A traced request received these values, or samples from them.
struct Seen {
  std::string peer;
  Step step;
  Tensors values;
};
/// A request cannot go on; or with `earlier`, neither can those before it; or none given: no request in flight can.
struct Failed {
  std::optional<std::uint64_t> request;
  Error error;
  bool earlier = false;

  bool concerns(std::uint64_t number) const { return !request || number == *request || (earlier && number < *request); }
};

// -- the schedule tells

/// A step begins at the source, once the request's last one is done there.
struct Begin {
  Step step;
  Tensors inputs;
};
/// A request is over on all devices.
struct End {
  std::uint64_t request = 0;
  bool report = false;
};
/// A request makes no progress, and these devices do not answer, either.
struct Stalled {
  Names silent;
  Error error;
};
/// A message goes to every device that is connected.
struct Broadcast {
  messages::AnyMessage message;
};

// -- changes of placement tell

/// A message goes to a device; the source may be meant itself.
struct Tell {
  std::string device;
  messages::AnyMessage message;
  Frames frames;
};
/// Requests stop at their step boundaries; at once: nothing under way is waited for, since it is lost.
struct Hold {
  bool at_once = false;
};
/// Devices were lost, and no placement does without them.
struct Broken {
  Names devices;
};
/// The ring stands as it stood; nothing was lost.
struct Mended {};
/// Devices were lost, or have forgotten what they had; a placement follows that does not need it.
struct Replaced {
  Names devices;
};
/// A placement that a client asks for, and when.
struct Wish {
  Origin origin;
  Bytes ticket;
  placement::Placement placement;
  std::string reason;
  double asked = 0.0;
};
/// A prepared placement is in force: the participants are to be told, and requests to go on.
struct Adopt {
  /// Role of the source.
  RolePtr role;
  /// Device → incarnation.
  Map<std::string, std::uint64_t> participants;
  /// (device, request, sub-module) → what is there.
  Map<std::tuple<std::string, std::uint64_t, std::string>, messages::Held> have;
  std::optional<Wish> wish;
  /// Time for which requests stood still, seconds.
  double stopped_s = 0.0;
};

using Action = std::variant<Delivered, Heard, Linked, Lost, Misfit, Forward, Emitted, Seen, Failed, Begin, End, Stalled,
                            Greeted, Broadcast, Tell, Hold, Broken, Mended, Replaced, Adopt, Send, Compute, Draw, Load,
                            Release, Reset, ReadRows, WriteRows, Connect, ReadSensors, Announce, Log, Leave>;

using Actions = std::vector<Action>;

}  // namespace partc::core
