// Values that other devices send to this one: each once and in order, acknowledged, held against the placement
// (…/core/links/incoming.py).
#pragma once

#include <string>
#include <utility>

#include "core/links/callers.hpp"
#include "core/links/headers.hpp"
#include "core/links/link.hpp"
#include "core/liveness.hpp"

namespace partc::core {

/// A message of values, and its frames.
using Packet = std::pair<messages::Data, Frames>;

/// The links to this device.
class Incoming {
 public:
  Incoming(RolePtr role, const Callers& callers);

  /// When `acknowledgements` must be asked for.
  Due due() const { return due_; }
  /// A placement will follow: keep its early messages.
  void prepare(const Role& role);
  /// The placement is in force: all links count from 0 again; what came early is delivered.
  void adopt(RolePtr role, Actions& out);
  /// A device has connected; the epoch, and the number of the message that it is to send next.
  std::pair<std::uint64_t, std::uint64_t> greeted(const std::string& name, const Origin& origin, std::uint64_t session);
  /// Acknowledge what has waited long enough.
  void acknowledgements(double now, Actions& out);
  /// Take a message. Throws Error: nothing is awaited from that device, or it breaks the rules of the link.
  void take(const std::string& peer, const messages::Data& data, const Frames& frames, double now, Actions& out);

 private:
  struct Link {
    Receiver<Packet> receiver;
    Origin origin{"", true};
    std::uint64_t unacknowledged = 0;
    /// When an acknowledgement must leave.
    Due due;
  };

  Link new_link(const std::string& name) const;
  void delivered(const std::string& peer, const Packet& packet, Actions& out) const;
  void acknowledge(Link& link, Actions& out);

  RolePtr role_;
  Headers headers_;
  const Callers& callers_;
  Due due_;
  Map<std::string, Link> links_;
};

}  // namespace partc::core
