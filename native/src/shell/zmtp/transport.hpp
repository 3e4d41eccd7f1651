/** The transport that speaks ZMTP 3.1 itself, in the thread that computes.

A message passes through no other thread: `send` encrypts and writes it, `poll` reads and decrypts it, which saves the
wake-ups of ZeroMQ's thread at both ends. Peers may use libzmq. What was sent and did not fit into the system's buffers
leaves during `poll`.
*/
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "shell/transport.hpp"
#include "shell/zmtp/session.hpp"
#include "shell/zmtp/tcp.hpp"

namespace partc::shell {

class ZmtpTransport : public Transport {
 public:
  ZmtpTransport(std::optional<Keys> keys, std::uint64_t frame_limit, double patience_s, std::uint64_t header_limit);
  ~ZmtpTransport() override;
  ZmtpTransport(const ZmtpTransport&) = delete;
  ZmtpTransport& operator=(const ZmtpTransport&) = delete;

  std::string listen(const std::string& address) override;
  void connect(const std::string& name, const std::string& address) override;
  const std::string& address_of(const std::string& name) const override { return outgoing_.at(name).address; }
  void watch(int descriptor) override;
  void unwatch(int descriptor) override;
  bool send(const core::Origin& origin, const messages::AnyMessage& message, const Frames& frames = {}) override;
  bool has_unsent() const override { return unsent_ > 0; }
  std::vector<Event> poll(std::optional<double> timeout_s) override;

 private:
  /** Numbers of connections, which never come again. */
  using Id = std::uint64_t;
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Connection {
    Id id;
    Descriptor socket;
    zmtp::Session session;
    /** Who is at the other end; a route until we know more. */
    core::Origin origin;
    /** Whether its handshake was over, and whether a message has come. */
    bool has_stood = false, has_spoken = false;
    bool waits_to_write = false;
  };
  /** A device that we connect to. */
  struct Outgoing {
    std::string address;
    std::optional<Lookup> lookup;
    std::vector<Address> found;
    std::size_t tries = 0;
    /** The connection, from its beginning; 0: there is none. */
    Id id = 0;
    /** Its socket while it is being made. */
    Descriptor begun;
    /** When that takes too long, or when it is tried again. */
    double deadline = 0.0;
    double retry_s = 0.0;
    bool is_up = false, has_stood = false;
    int failures = 0;
  };

  void take(std::uint64_t key);
  void pass_time();
  void soon(double deadline) { deadline_ = std::min(deadline_, deadline); }

  void accept_all();
  void listen_again();

  void look_for(const std::string& name, Outgoing& out);
  void begin(Outgoing& out, const Address& address);
  void retry_later(Outgoing& out);
  void made(const std::string& name, Outgoing& out);
  void leave(const std::string& name);
  bool fails_for_good(Outgoing& out, zmtp::Failure failure) const;

  std::unique_ptr<zmtp::Mechanism> mechanism(const core::Origin& origin) const;
  void add(Id id, Descriptor socket, core::Origin origin);
  void read(Id id);
  void took(Connection& connection);
  Event decoded(const Connection& connection, Frames frames) const;
  void write(Connection& connection);
  std::unique_ptr<Connection> extract(Id id);
  void close(Id id, zmtp::Failure failure);

  std::optional<Keys> keys_;
  std::uint64_t frame_limit_, header_limit_;
  double heartbeat_s_;
  std::size_t most_silent_;
  Descriptor epoll_, listener_;
  double listens_again_ = kNever;  // after a time in which no more files could be opened
  Id last_id_ = 0;
  std::unordered_map<Id, std::unique_ptr<Connection>> connections_;
  std::size_t unsent_ = 0;  // connections that wait to write
  std::unordered_map<std::string, Id> routes_;
  std::set<int> files_;  // watched ones that are always readable
  std::set<Id> silent_;  // connections to us of which no message has come; the first one is the oldest
  std::map<std::string, Outgoing> outgoing_;
  std::vector<Event> events_;
  std::vector<Frames> messages_;
  std::unique_ptr<char[]> scratch_;
  double now_, deadline_ = kNever;
};

}  // namespace partc::shell
