/** The transport over libzmq.

As `partc/runtime/shell/transport.py`, which says why: a ROUTER that is bound, a DEALER to every device that this one
sends to, and an authenticator in this process that names the peer behind every connection.
*/
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shell/transport.hpp"
#include "shell/zmq/sockets.hpp"

namespace partc::shell {

class ZmqTransport : public Transport {
 public:
  ZmqTransport(std::optional<Keys> keys, std::uint64_t frame_limit, double patience_s, std::uint64_t header_limit);
  ~ZmqTransport() override;
  ZmqTransport(const ZmqTransport&) = delete;
  ZmqTransport& operator=(const ZmqTransport&) = delete;

  std::string listen(const std::string& address) override;
  void connect(const std::string& name, const std::string& address) override;
  const std::string& address_of(const std::string& name) const override { return outgoing_.at(name).address; }
  void watch(int descriptor) override { watched_.insert(descriptor); }
  void unwatch(int descriptor) override { watched_.erase(descriptor); }
  bool send(const core::Origin& origin, const messages::AnyMessage& message, const Frames& frames = {}) override;
  bool has_unsent() const override { return false; }  // libzmq has a thread of its own
  std::vector<Event> poll(std::optional<double> timeout_s) override;

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

  Socket open(int kind, const std::string& address);
  Socket dealer(const std::string& name, const std::string& address);
  void leave(const std::string& name);
  Ready wait(std::optional<double> timeout_s, std::vector<Event>& inputs);
  void receive(Socket& socket, const std::optional<std::string>& name, Until until, std::vector<Event>& events);
  Event read(const core::Origin& origin, std::optional<std::string> user, std::vector<Incoming> frames,
             std::size_t first);
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
  std::set<int> unproven_;  // connections to us whose handshake is not over
  std::optional<Socket> router_, router_monitor_, zap_;
  std::set<int> watched_;
  std::vector<Event> left_;  // connections that we closed ourselves since the last `poll`
};

}  // namespace partc::shell
