// The links of one device: who is at the other end of each connection, and what may travel over it
// (…/core/links/links.py).
#pragma once

#include <optional>
#include <string>

#include "core/links/callers.hpp"
#include "core/links/incoming.hpp"
#include "core/links/outgoing.hpp"
#include "core/start.hpp"

namespace partc::core {

class Links {
 public:
  Links(RolePtr role, std::uint64_t incarnation, Info info);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  /// At the source: requests below this number are over.
  std::uint64_t first_request = 0;
  /// Device → HOST:PORT where it told one; absent: as it was given at start.
  Map<std::string, std::string> addresses;
  /// Who is connected to this device.
  Callers callers;
  Incoming incoming;
  Outgoing outgoing;

  /// The devices to which no link stands, of those that this one sends to.
  Names missing() const { return outgoing.missing_for(*role_); }
  /// The connection that messages to a device take now; none: there is none either way.
  std::optional<Origin> way_to(const std::string& device) const;
  /// See to it that a connection to a device comes to stand; nothing where there is one, or will be.
  void connect(const std::string& device, Actions& out);
  /// Devices are at these addresses now, HOST:PORT.
  void moved(const Map<std::string, std::string>& to, Actions& out);
  /// A placement will follow: connect to whom it sends to, and keep early messages.
  void prepare(const Role& role, const Map<std::string, std::string>& to, Actions& out);
  /// The placement is in force: all links count from 0 again; what came early is delivered.
  void adopt(RolePtr role, Actions& out);
  /// The devices that are connected to this one → where messages to them go.
  Map<std::string, Origin> devices() const { return callers.devices(); }

  void connected(const std::string& peer, const std::string& address, Actions& out);
  void disconnected(const Origin& origin, Actions& out);
  void rejected(const std::string& peer, Actions& out);
  /// Take a message; one that must not be trusted ends the requests in flight, or is refused.
  void received(const Received& event, double now, Actions& out);
  void unreadable(const Unreadable& event, Actions& out);

 private:
  void distrust(const Origin& origin, Error error, Actions& out) const;
  void message(const Received& event, double now, Actions& out);
  void welcome(const Received& event, const messages::Hello& hello, Actions& out);
  void greeted(const Origin& origin, const messages::Hello& hello, Actions& out);
  void found(const std::string& device, const std::string& address, Actions& out);
  void ask_former(const std::string& name, Actions& out) const;

  RolePtr role_;
  std::uint64_t incarnation_;
  Info info_;
};

}  // namespace partc::core
