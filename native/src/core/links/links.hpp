// The links of one device; the table of their states is in partc/runtime/core/links/links.py.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/actions.hpp"
#include "core/links/headers.hpp"
#include "core/links/link.hpp"
#include "core/liveness.hpp"

namespace partc::core {

using Info = Map<std::string, Fact>;

class Links {
 public:
  struct Greeting {
    Received event;
    messages::Hello hello;
  };

  Links(RolePtr role, std::uint64_t incarnation, Info info);

  /// At the source: requests below this number are over.
  std::uint64_t first_request = 0;
  /// Device → HOST:PORT where it told one; absent: as it was given at start.
  Map<std::string, std::string> addresses;

  /// When `acknowledgements` must be asked for.
  Due due() const { return due_; }
  /// The devices to which no link stands, of those that this one sends to in a role; in its own.
  Names missing_for(const Role& role) const;
  Names missing() const { return missing_for(*role_); }
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
  Map<std::string, Origin> devices() const;

  void connected(const std::string& peer, const std::string& address, Actions& out);
  void disconnected(const Origin& origin, Actions& out);
  void rejected(const std::string& peer, Actions& out);
  /// Take a message; one that must not be trusted ends the requests in flight, or is refused.
  void received(const Received& event, double now, Actions& out);
  void unreadable(const Unreadable& event, Actions& out);
  /// The greeting that a message is, or an earlier one that it brings back: the answer of `ask_former`.
  std::optional<Greeting> greeting(const Received& event) const;
  /// The message that takes values to a device; none where no link stands: it leaves once one does.
  /// Throws Error: the receiver has stopped acknowledging.
  std::optional<Send> send(const Forward& forward);
  /// Acknowledge what has waited long enough.
  void acknowledgements(double now, Actions& out);

 private:
  enum class State { down, greeting, up };
  using Packet = std::pair<messages::Data, Frames>;
  struct Outgoing {
    Sender<Packet> sender;
    State state = State::down;
  };
  struct Incoming {
    Receiver<Packet> receiver;
    Origin origin{"", true};
    std::uint64_t unacknowledged = 0;
    /// When an acknowledgement must leave.
    Due due;
  };
  Outgoing& out_to(const std::string& peer);
  messages::Hello hello(const Outgoing& out) const;
  Incoming new_in(const std::string& name) const;
  Outgoing new_out(const std::string& name);
  void distrust(const Origin& origin, Error error, Actions& out) const;
  std::optional<std::string> name_of(const Origin& origin) const;
  void message(const Received& event, double now, Actions& out);
  void welcome(const Received& event, const messages::Hello& hello, Actions& out);
  void greeted(const messages::Hello& hello, Actions& out);
  void found(const std::string& device, const std::string& address, Actions& out);
  void check_greeting(const messages::Hello& hello, const std::optional<std::string>& user) const;
  void supersede(const Received& event, const messages::Hello& hello, Actions& out);
  void ask_former(const std::string& name, Actions& out) const;
  void welcomed(const std::string& peer, const messages::Welcome& message, Actions& out);
  void data(const std::string& peer, const messages::Data& data, const Frames& frames, double now, Actions& out);
  void delivered(const std::string& peer, const Packet& packet, Actions& out) const;
  void acknowledge(Incoming& link, Actions& out);

  RolePtr role_;
  std::uint64_t incarnation_;
  Info info_;
  std::string address_;
  Due due_;
  Headers headers_;
  Map<std::string, Outgoing> out_;
  Map<std::string, Incoming> in_;
  /// Route of a connection to this device → who is at its other end.
  Map<Origin, std::string> names_;
  /// Route of a connection that stands → the last greeting of a device on it, superseded ones included.
  Map<Origin, Greeting> greetings_;
  /// Device → its last connection to this one, and its session.
  Map<std::string, std::pair<Origin, std::uint64_t>> callers_;
  std::uint64_t next_session_;
};

/// The devices that a device connects to.
Names peers_of(const Role& role);

}  // namespace partc::core
