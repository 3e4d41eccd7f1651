#include "shell/zmq/sockets.hpp"

#include <cerrno>
#include <cstring>
#include <memory>

#include "errors.hpp"

namespace partc::shell {
namespace {

/** Smaller frames are copied, which costs less than to keep track of their memory. */
constexpr std::size_t kCopyBelowBytes = 16 * 1024;

struct Message {
  zmq_msg_t raw;
  Message() { zmq_msg_init(&raw); }
  ~Message() { zmq_msg_close(&raw); }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
};

void fail(const char* what) { throw internal_error(std::string(what) + ": " + zmq_strerror(zmq_errno())); }

void let_go(void*, void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

void fill(zmq_msg_t* message, const Frame& frame) {
  if (frame.size < kCopyBelowBytes || !frame.owner) {
    if (zmq_msg_init_size(message, frame.size)) fail("a message");
    if (frame.size) std::memcpy(zmq_msg_data(message), frame.data, frame.size);
    return;
  }
  auto* owner = new std::shared_ptr<const void>(frame.owner);
  auto* data = const_cast<std::byte*>(frame.data);  // ZeroMQ only reads it
  if (zmq_msg_init_data(message, data, frame.size, let_go, owner)) {
    delete owner;
    fail("a message");
  }
}

}  // namespace

Socket::Socket(void* context, int kind) : socket_(zmq_socket(context, kind)) {
  if (!socket_) throw run_error(std::string("no socket can be opened: ") + zmq_strerror(zmq_errno()));
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(socket_, other.socket_);
  return *this;
}

Socket::~Socket() {
  if (socket_) zmq_close(socket_);
}

void Socket::set(int option, int value) {
  if (zmq_setsockopt(socket_, option, &value, sizeof value)) fail("an option of a socket");
}

void Socket::set(int option, std::int64_t value) {
  if (zmq_setsockopt(socket_, option, &value, sizeof value)) fail("an option of a socket");
}

void Socket::set(int option, const std::string& text) {
  if (zmq_setsockopt(socket_, option, text.data(), text.size())) fail("an option of a socket");
}

std::string Socket::endpoint() const {
  char text[1024];
  std::size_t size = sizeof text;
  if (zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, text, &size)) fail("the address of a socket");
  return {text, strnlen(text, size)};
}

int Socket::bind(const std::string& endpoint) { return zmq_bind(socket_, endpoint.c_str()) ? zmq_errno() : 0; }

int Socket::connect(const std::string& endpoint) { return zmq_connect(socket_, endpoint.c_str()) ? zmq_errno() : 0; }

Socket Socket::monitor(void* context, int events) {
  static std::uint64_t count = 0;
  const std::string endpoint = "inproc://monitor-" + std::to_string(++count);
  if (zmq_socket_monitor(socket_, endpoint.c_str(), events)) fail("a monitor");
  Socket reader(context, ZMQ_PAIR);
  if (reader.connect(endpoint)) fail("a monitor");
  return reader;
}

void Socket::end_monitor() { zmq_socket_monitor(socket_, nullptr, 0); }

bool Socket::send(const std::vector<Frame>& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    zmq_msg_t message;
    fill(&message, frames[i]);
    if (zmq_msg_send(&message, socket_, ZMQ_DONTWAIT | (i + 1 < frames.size() ? ZMQ_SNDMORE : 0)) >= 0) continue;
    const int error = zmq_errno();
    zmq_msg_close(&message);
    if (error == EAGAIN || error == EHOSTUNREACH) return false;
    fail("sending");
  }
  return true;
}

std::vector<Incoming> Socket::receive() {
  std::vector<Incoming> frames;
  // A message is there with all its frames or not at all.
  for (bool has_more = true; has_more;) {
    const auto message = std::make_shared<Message>();
    if (zmq_msg_recv(&message->raw, socket_, ZMQ_DONTWAIT) < 0) {
      if (zmq_errno() == EAGAIN || zmq_errno() == EINTR) return {};
      fail("receiving");
    }
    const auto* data = static_cast<const std::byte*>(zmq_msg_data(&message->raw));
    const char* user = zmq_msg_gets(&message->raw, "User-Id");
    frames.push_back({{message, data, zmq_msg_size(&message->raw)}, zmq_msg_get(&message->raw, ZMQ_SRCFD), {}});
    if (user) frames.back().user = user;
    has_more = zmq_msg_more(&message->raw);
  }
  return frames;
}

std::vector<Told> told_by(Socket& monitor) {
  std::vector<Told> found;
  for (std::vector<Incoming> frames; !(frames = monitor.receive()).empty();) {
    const Frame& head = frames.front().frame;  // 16 bits of the event, 32 of its value
    if (head.size != 6) continue;
    std::uint16_t event;
    std::int32_t value;
    std::memcpy(&event, head.data, sizeof event);
    std::memcpy(&value, head.data + sizeof event, sizeof value);
    found.emplace_back(event, value);
  }
  return found;
}

}  // namespace partc::shell
