/** Sockets, encryption, connections and the bytes of messages; what messages mean is the core's.

As `partc/runtime/shell/transport.py`, which says why: a ROUTER that is bound, a DEALER to every device that this one
sends to, CURVE on all of them where there are keys, and an authenticator in this process that admits the public keys of
the peers alone. Everything that can happen arrives through one `poll`.
*/
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/events.hpp"
#include "shell/keys.hpp"
#include "shell/sockets.hpp"

namespace partc::shell {

/** A watched file is readable or at its end. */
struct Input {
  int descriptor;
};

using Event =
    std::variant<core::Received, core::Unreadable, core::Connected, core::Disconnected, core::Rejected, Input>;

/** All sockets of one participant. Not for use by several threads. */
class Transport {
 public:
  /** Make no connection yet.

  `keys`: ours and our peers'; none leaves everything in the clear (loopback only). Larger frames than `frame_limit` are
  refused before memory is taken for them, longer headers than `header_limit` are not read (bytes). A connection whose
  other end is dead for 1.5 times `patience_s` is closed.
  */
  Transport(std::optional<Keys> keys, std::uint64_t frame_limit, double patience_s, std::uint64_t header_limit);
  /** Close all sockets; queued messages get a moment to leave. */
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /** Bind the ROUTER; HOST:PORT, with the port that was given or found (for port 0). Throws a run error. */
  std::string listen(const std::string& address);
  /** Begin to connect to a device; `Connected` tells when it stands, and comes again after every break.

  A second call, with another address, is for a device that has moved. Throws a run error: the address is none, or not a
  loopback one while there are no keys.
  */
  void connect(const std::string& name, const std::string& address);
  const std::string& address_of(const std::string& name) const { return outgoing_.at(name).address; }
  /** Report input on a file as well; and stop that. */
  void watch(int descriptor) { watched_.insert(descriptor); }
  void unwatch(int descriptor) { watched_.erase(descriptor); }

  /** Queue a message without waiting; false when there is no connection to take it. */
  bool send(const core::Origin& origin, const messages::AnyMessage& message, const Frames& frames = {});
  /** The events since the last call, in order for each connection; after `timeout_s` at the latest (none: never).

  More messages may lie ready than it returns.
  */
  std::vector<Event> poll(std::optional<double> timeout_s);

 private:
  struct Outgoing {
    std::string address;
    Socket socket, monitor;
    bool is_up = false, has_stood = false;
    int failures = 0;
    bool fails_for_good(int event);
  };
  /** Routes by the descriptor of their connection, which is all that a monitor tells. */
  struct Routes {
    std::map<int, std::string> routes;
    std::set<int> closed;
    std::list<int> silent;  // connections of which no message has come, the oldest first
  };
  enum class Until { values, empty };
  /** What polling found. */
  using Ready = std::set<const void*>;

  Socket open(int kind);
  Socket dealer(const std::string& name);
  void leave(const std::string& name);
  Ready wait(std::optional<double> timeout_s, std::vector<Event>& inputs);
  void receive(Socket& socket, const std::optional<std::string>& name, Until until, std::vector<Event>& events);
  Event read(const core::Origin& origin, std::optional<std::string> user, std::vector<Incoming> frames, std::size_t first);
  void read_own_monitors(const Ready& ready, std::vector<Event>& before, std::vector<Event>& after);
  std::vector<Event> read_router_monitor();
  void accepted(int descriptor);
  void authenticate();

  std::optional<Keys> keys_;
  std::uint64_t frame_limit_, header_limit_;
  int heartbeat_ms_;
  std::shared_ptr<void> context_;
  std::map<std::string, Outgoing> outgoing_;
  Routes incoming_;
  std::size_t most_silent_;
  std::optional<Socket> router_, router_monitor_, zap_;
  std::set<int> watched_;
  std::vector<Event> left_;  // connections that we closed ourselves since the last `poll`
};

}  // namespace partc::shell
