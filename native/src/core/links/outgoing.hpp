// Values that this device sends to others: kept until they are acknowledged, sent again after a break. The table of the
// states of a link is in partc/runtime/core/links/outgoing.py.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/actions.hpp"
#include "core/links/link.hpp"

namespace partc::core {

/// The links from this device.
class Outgoing {
 public:
  Outgoing(RolePtr role, std::uint64_t incarnation);

  /// The devices to which no link stands, of those that this one sends to in a role.
  Names missing_for(const Role& role) const;
  /// Whether there is a link to a device, or will be.
  bool is_known(const std::string& device) const { return links_.contains(device); }
  /// Whether a link to a device stands; or has no connection.
  bool is_up(const std::string& device) const;
  bool is_down(const std::string& device) const { return links_.at(device).state == State::down; }
  /// There is to be a link to a device; whether it is new.
  bool add(const std::string& device);
  /// Another placement is in force: all links count from 0 again.
  void adopt(RolePtr role);
  /// A connection stands: the greeting; `address` is where this device can be reached.
  Send connected(const std::string& peer, const std::string& address);
  /// A connection is closed.
  void disconnected(const std::string& peer) { links_.at(peer).state = State::down; }
  /// A device has answered the greeting: what it lacks goes again.
  void welcomed(const std::string& peer, const messages::Welcome& message, Actions& out);
  /// A device has what it was sent. Throws Error: it was sent nothing, or not as much.
  void acknowledged(const std::string& peer, const messages::Ack& ack);
  /// The message that takes values to a device; none where no link stands: it leaves once one does.
  /// Throws Error: the receiver has stopped acknowledging.
  std::optional<Send> send(const Forward& forward);

 private:
  enum class State { down, greeting, up };
  struct Link {
    Sender<std::pair<messages::Data, Frames>> sender;
    State state = State::down;
  };

  Link new_link(const std::string& name);
  messages::Hello hello(const Link& link) const;

  RolePtr role_;
  std::uint64_t incarnation_;
  /// HOST:PORT of this device; empty: as the placement says.
  std::string address_;
  std::uint64_t next_session_;
  Map<std::string, Link> links_;
};

/// The devices that a device connects to.
Names peers_of(const Role& role);

}  // namespace partc::core
