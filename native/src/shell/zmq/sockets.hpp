/** ZeroMQ's sockets and messages with owners. */
#pragma once

#include <zmq.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/tensor.hpp"

namespace partc::shell {

/** One frame that came, and what ZeroMQ knows of its connection. */
struct Incoming {
  Frame frame;
  int descriptor = -1;
  /** The name that the authenticator gave its sender. */
  std::optional<std::string> user;
};

/** A socket; used by the one thread that made it. */
class Socket {
 public:
  Socket(void* context, int kind);
  Socket(Socket&& other) noexcept : socket_(std::exchange(other.socket_, nullptr)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  void* get() const { return socket_; }
  void set(int option, int value);
  void set(int option, std::int64_t value);
  void set(int option, const std::string& text);
  std::string endpoint() const;
  /** 0, or ZeroMQ's number of the error. */
  int bind(const std::string& endpoint);
  int connect(const std::string& endpoint);
  /** A socket that tells of some of this one's events. */
  Socket monitor(void* context, int events);
  void end_monitor();

  /** Queue a message without waiting; whether it was taken. Large frames are not copied. */
  bool send(const std::vector<Frame>& frames);
  /** The frames of the next message; none where no message lies ready. */
  std::vector<Incoming> receive();

 private:
  void* socket_ = nullptr;
};

/** What a monitor tells: an event of ZeroMQ's, and the descriptor of a connection or a number of an error. */
using Told = std::pair<int, int>;

/** All that a monitor has to tell now. */
std::vector<Told> told_by(Socket& monitor);

}  // namespace partc::shell
