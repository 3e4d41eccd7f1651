#include "shell/zmtp/tcp.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>

namespace partc::shell {
namespace {

constexpr int kBacklog = 4096;  // the system takes less where it allows less

struct Parts {
  std::string host;
  std::uint16_t port = 0;
};

/** `text` is HOST:PORT. */
Parts split(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  Parts parts{text.substr(0, colon), 0};
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), parts.port);
  if (parts.host.size() > 1 && parts.host.front() == '[') parts.host = parts.host.substr(1, parts.host.size() - 2);
  return parts;
}

template <class T>
Address address_of(const T& raw) {
  Address address;
  std::memcpy(&address.storage, &raw, sizeof raw);
  address.size = sizeof raw;
  return address;
}

void without_delay(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Descriptor open(const Address& address) {
  return Descriptor(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/** What failed, with its reason kept while the socket is closed. */
Descriptor given_up(Descriptor socket) {
  const int error = errno;
  socket = Descriptor();
  errno = error;
  return Descriptor();
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

std::optional<Address> numeric_address(const std::string& text) {
  const Parts parts = split(text);
  const std::string host = parts.host == "*" ? "0.0.0.0" : parts.host == "localhost" ? "127.0.0.1" : parts.host;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(parts.port);
  if (inet_pton(AF_INET, host.c_str(), &four.sin_addr) == 1) return address_of(four);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(parts.port);
  if (inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) == 1) return address_of(six);
  return {};
}

std::vector<Address> look_up(const std::string& text) {
  if (const auto address = numeric_address(text)) return {*address};
  const Parts parts = split(text);
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(parts.host.c_str(), std::to_string(parts.port).c_str(), &wanted, &found)) return {};
  std::vector<Address> addresses;
  for (const addrinfo* one = found; one; one = one->ai_next) {
    Address& address = addresses.emplace_back();
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
  }
  freeaddrinfo(found);
  return addresses;
}

Lookup::Lookup(const std::string& text) {
  std::thread([shared = shared_, text] {
    std::vector<Address> found = look_up(text);
    const std::lock_guard lock(shared->mutex);
    shared->found = std::move(found);
  }).detach();
}

std::optional<std::vector<Address>> Lookup::result() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->found;
}

Descriptor listen_on(const Address& address) {
  Descriptor socket = open(address);
  const int on = 1;
  // The port of a runner that was just killed can be had at once.
  if (!socket || setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
      bind(socket.get(), address.get(), address.size) || listen(socket.get(), kBacklog))
    return given_up(std::move(socket));
  return socket;
}

std::string bound_address(int socket) {
  Address address;
  address.size = sizeof address.storage;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(address.get(), address.size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV))
    return {};
  return address.storage.ss_family == AF_INET6 ? '[' + std::string(host) + "]:" + port : std::string(host) + ':' + port;
}

Descriptor accept_from(int listener) {
  Descriptor socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) without_delay(socket.get());
  return socket;
}

Descriptor connect_to(const Address& address) {
  Descriptor socket = open(address);
  if (!socket) return socket;
  without_delay(socket.get());
  if (connect(socket.get(), address.get(), address.size) && errno != EINPROGRESS) return given_up(std::move(socket));
  return socket;
}

int connection_error(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size)) return errno;
  if (error) return error;
  // Where nobody listens, a connection can meet itself: the system may have chosen the very port for its near end.
  Address ours, theirs;
  ours.size = theirs.size = sizeof ours.storage;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&ours.storage), &ours.size) ||
      getpeername(socket, reinterpret_cast<sockaddr*>(&theirs.storage), &theirs.size))
    return errno;
  const bool is_itself = ours.size == theirs.size && !std::memcmp(&ours.storage, &theirs.storage, ours.size);
  return is_itself ? ECONNREFUSED : 0;
}

}  // namespace partc::shell
