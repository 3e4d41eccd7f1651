#include "shell/zmtp/transport.hpp"

#include <poll.h>
#include <sodium.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "errors.hpp"
#include "format/codec.hpp"
#include "shell/addresses.hpp"
#include "shell/clock.hpp"
#include "shell/descriptors.hpp"

namespace partc::shell {
namespace {

using zmtp::Failure;
using zmtp::State;

constexpr double kLingerS = 0.3;
constexpr double kHandshakeS = 10.0;         // who has not proven his name by then is disconnected
constexpr double kPatientHandshakeS = 30.0;  // for those that we connect to: they may be loading
constexpr int kAuthTries = 3;
constexpr double kRetryS = 0.02, kRetryAtMostS = 0.25;  // a ring stands still meanwhile
constexpr double kConnectS = 2.0;  // the system alone would try for two minutes to reach who has left the network
constexpr double kLookupS = 0.02;  // between two looks whether a name has been found
constexpr double kListenAgainS = 0.1;
constexpr std::size_t kReadBytes = 128 * 1024;
constexpr int kReads = 8;           // in a row from one connection,
constexpr std::size_t kBatch = 64;  // until so many events wait
constexpr int kAccepted = 64;       // in a row
constexpr int kReady = 64;

/** What epoll tells: a watched file with its number, the listener, or the number of a connection. */
constexpr std::uint64_t kWatched = std::uint64_t{1} << 63, kListener = 0;

bool control(const Descriptor& epoll, int operation, int descriptor, std::uint32_t events, std::uint64_t key) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  return epoll_ctl(epoll.get(), operation, descriptor, &event) == 0;
}

}  // namespace

ZmtpTransport::ZmtpTransport(std::optional<Keys> keys, std::uint64_t frame_limit, double patience_s,
                             std::uint64_t header_limit)
    : keys_(std::move(keys)),
      frame_limit_(frame_limit),
      header_limit_(header_limit),
      heartbeat_s_(std::max(0.05, patience_s / 2)),
      most_silent_(most_silent()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      scratch_(std::make_unique_for_overwrite<char[]>(kReadBytes)),
      now_(monotonic()) {
  if (!epoll_) throw run_error(std::string("no sockets can be watched: ") + std::strerror(errno));
  if (keys_ && sodium_init() < 0) throw internal_error("libsodium does not start");
}

ZmtpTransport::~ZmtpTransport() {
  const double end = monotonic() + kLingerS;
  for (double now = monotonic(); now < end; now = monotonic()) {
    std::vector<pollfd> unsent;
    for (const auto& [id, connection] : connections_) {
      if (connection->session.state() != State::open) continue;
      write(*connection);
      if (!connection->session.unsent().empty()) unsent.push_back({connection->socket.get(), POLLOUT, 0});
    }
    if (unsent.empty()) return;
    ::poll(unsent.data(), unsent.size(), static_cast<int>(std::ceil(1000 * (end - now))));
  }
}

std::string ZmtpTransport::listen(const std::string& address) {
  if (!keys_) require_loopback(address);
  const auto cannot = [&](int error) { return cannot_listen(error, std::strerror(error), address); };
  const std::vector<Address> found = has_port(address) ? look_up(address) : std::vector<Address>{};
  if (found.empty()) throw cannot(ENODEV);
  listener_ = listen_on(found.front());
  if (!listener_) throw cannot(errno);
  listen_again();
  return bound_address(listener_.get());
}

void ZmtpTransport::connect(const std::string& name, const std::string& address) {
  if (!has_port(address)) throw no_address(name, address);
  if (!keys_) require_loopback(address);
  mechanism({name, false});  // whose keys may be missing
  if (const auto known = outgoing_.find(name); known != outgoing_.end()) {
    if (known->second.address == address) return;
    leave(name);
  }
  Outgoing& out = outgoing_[name];
  out.address = address;
  out.retry_s = kRetryS;
  now_ = monotonic();
  look_for(name, out);
}

void ZmtpTransport::watch(int descriptor) {
  if (control(epoll_, EPOLL_CTL_ADD, descriptor, EPOLLIN, kWatched | static_cast<std::uint64_t>(descriptor))) return;
  if (errno != EPERM) throw internal_error(std::string("a file cannot be watched: ") + std::strerror(errno));
  files_.insert(descriptor);  // as one on a disk, for which nobody ever has to wait
}

void ZmtpTransport::unwatch(int descriptor) {
  if (files_.erase(descriptor)) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

bool ZmtpTransport::send(const core::Origin& origin, const messages::AnyMessage& message, const Frames& frames) {
  Id id = 0;
  if (origin.is_route) {
    const auto route = routes_.find(origin.name);
    if (route != routes_.end()) id = route->second;
  } else {
    const auto out = outgoing_.find(origin.name);
    if (out != outgoing_.end() && out->second.is_up) id = out->second.id;
  }
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second->session.state() != State::open) return false;
  const std::string header = encode(message);
  Frames all{{nullptr, reinterpret_cast<const std::byte*>(header.data()), header.size()}};
  all.insert(all.end(), frames.begin(), frames.end());
  found->second->session.send(all);
  write(*found->second);
  return true;
}

std::vector<Event> ZmtpTransport::poll(std::optional<double> timeout_s) {
  now_ = monotonic();
  const double end = timeout_s ? now_ + *timeout_s : kNever;
  const std::uint64_t strangers_before = strangers_;
  while (true) {
    const bool waits = events_.empty() && files_.empty();
    const double wait_ms = waits ? std::ceil(1000 * std::max(0.0, std::min(end, deadline_) - now_)) : 0;
    std::array<epoll_event, kReady> ready;
    const int count = epoll_wait(epoll_.get(), ready.data(), kReady, wait_ms < 1e9 ? static_cast<int>(wait_ms) : -1);
    now_ = monotonic();
    for (int i = 0; i < count; ++i) take(ready[static_cast<std::size_t>(i)].data.u64);
    if (now_ >= deadline_) pass_time();
    for (const int file : files_) events_.push_back(Input{file});
    const bool has_news = !events_.empty() || strangers_ != strangers_before;
    if (has_news || now_ >= end || count < 0) return std::exchange(events_, {});
  }
}

void ZmtpTransport::take(std::uint64_t key) {
  if (key == kListener) return accept_all();
  if (key & kWatched) return events_.push_back(Input{static_cast<int>(key & ~kWatched)});
  for (auto& [name, out] : outgoing_)
    if (out.id == key && out.begun) return made(name, out);
  const auto found = connections_.find(key);
  if (found == connections_.end()) return;  // it was closed since
  if (found->second->waits_to_write) write(*found->second);
  read(key);
}

/** Do what is due. Nobody is given up before what lies ready was read: we may have been away for longer than they. */
void ZmtpTransport::pass_time() {
  deadline_ = kNever;
  for (auto& [name, out] : outgoing_) {
    if (out.id == 0 && now_ >= out.deadline) look_for(name, out);
    if (out.begun && now_ >= out.deadline) retry_later(out);
    if (out.id == 0 || out.begun) soon(out.deadline);
  }
  std::vector<Id> due;
  for (const auto& [id, connection] : connections_)
    if (now_ >= connection->session.deadline()) due.push_back(id);
  for (const Id id : due) {
    read(id);
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    found->second->session.tick(now_);
    took(*found->second);
  }
  for (const auto& [id, connection] : connections_) soon(connection->session.deadline());
  if (now_ >= listens_again_) listen_again();
  soon(listens_again_);
}

// Connections to us.

void ZmtpTransport::listen_again() {
  listens_again_ = kNever;
  control(epoll_, EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListener);
}

/** Too many silent connections cost the oldest one its place: who says nothing may be anybody, and every connection is an
open file. */
void ZmtpTransport::accept_all() {
  for (int count = 0; count < kAccepted; ++count) {
    Descriptor socket = accept_from(listener_.get());
    if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      if (!silent_.empty()) return close(*silent_.begin(), Failure::lost);
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      listens_again_ = now_ + kListenAgainS;
      return soon(listens_again_);
    }
    if (!socket) return;
    const Id id = ++last_id_;
    if (!control(epoll_, EPOLL_CTL_ADD, socket.get(), EPOLLIN, id)) return;
    const core::Origin origin{std::string(reinterpret_cast<const char*>(&id), sizeof id), true};
    silent_.insert(id);
    add(id, std::move(socket), origin);
    if (silent_.size() > most_silent_) close(*silent_.begin(), Failure::lost);
  }
}

// Connections from us.

/** Begin a connection to the next of a device's addresses; the name is looked up first where it is one. */
void ZmtpTransport::look_for(const std::string& name, Outgoing& out) {
  if (out.lookup) {
    const auto found = out.lookup->result();
    if (!found) return soon(out.deadline = now_ + kLookupS);
    out.found = *found;
    out.lookup.reset();
    if (out.found.empty()) return retry_later(out);
  }
  if (out.found.empty()) {
    if (const auto address = numeric_address(out.address)) {
      out.found = {*address};
    } else {
      out.lookup.emplace(out.address);
      return look_for(name, out);
    }
  }
  const Address next = out.found.back();
  out.found.pop_back();
  begin(out, next);
}

void ZmtpTransport::begin(Outgoing& out, const Address& address) {
  out.begun = connect_to(address);
  if (!out.begun) return retry_later(out);
  out.id = ++last_id_;
  out.deadline = now_ + kConnectS;
  if (!control(epoll_, EPOLL_CTL_ADD, out.begun.get(), EPOLLOUT, out.id)) return retry_later(out);
  soon(out.deadline);
}

void ZmtpTransport::retry_later(Outgoing& out) {
  out.begun = Descriptor();
  out.id = 0;
  out.deadline = now_ + out.retry_s;
  out.retry_s = std::min(2 * out.retry_s, kRetryAtMostS);
  soon(out.deadline);
}

/** A connection that had begun stands, or it does not. */
void ZmtpTransport::made(const std::string& name, Outgoing& out) {
  if (connection_error(out.begun.get())) return retry_later(out);
  Descriptor socket = std::exchange(out.begun, Descriptor());
  control(epoll_, EPOLL_CTL_MOD, socket.get(), EPOLLIN, out.id);
  add(out.id, std::move(socket), {name, false});
}

/** Close the connection to a device; what it has not read is lost, as in a break. */
void ZmtpTransport::leave(const std::string& name) {
  const auto found = outgoing_.find(name);
  if (connections_.contains(found->second.id)) extract(found->second.id);
  if (found->second.is_up) events_.push_back(core::Disconnected{{name, false}});
  outgoing_.erase(found);
}

/** Whether a handshake that failed will fail again.

Where it is cut off, the other end cannot read what we encrypted for another key, or it was just being stopped. The first
happens again at every try. Once a connection has stood, it is the second, or a router in between that reaches nobody: it
may last.
*/
bool ZmtpTransport::fails_for_good(Outgoing& out, Failure failure) const {
  if (failure == Failure::broken || failure == Failure::refused) return true;
  out.failures += !out.has_stood;
  return out.failures >= kAuthTries;
}

// Connections of both kinds.

std::unique_ptr<zmtp::Mechanism> ZmtpTransport::mechanism(const core::Origin& origin) const {
  if (!keys_) return zmtp::make_null(origin.is_route ? zmtp::Role::server : zmtp::Role::client);
  return origin.is_route ? zmtp::make_curve_server(*keys_) : zmtp::make_curve_client(*keys_, origin.name);
}

void ZmtpTransport::add(Id id, Descriptor socket, core::Origin origin) {
  const zmtp::Limits limits{frame_limit_, origin.is_route ? kHandshakeS : kPatientHandshakeS, heartbeat_s_};
  if (origin.is_route) routes_[origin.name] = id;
  zmtp::Session session(mechanism(origin), limits, now_);
  soon(session.deadline());
  std::unique_ptr<Connection> connection(new Connection{id, std::move(socket), std::move(session), std::move(origin)});
  write(*connection);
  connections_.emplace(id, std::move(connection));
}

void ZmtpTransport::read(Id id) {
  for (int count = 0; count < kReads; ++count) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = *found->second;
    const ssize_t size = recv(connection.socket.get(), scratch_.get(), kReadBytes, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) return close(id, Failure::lost);
    const auto bytes = static_cast<std::size_t>(size);
    connection.session.receive({scratch_.get(), bytes}, now_, messages_);
    took(connection);
    if (bytes < kReadBytes || events_.size() >= kBatch) return;
  }
}

/** What a session told: it stands, messages came, there is an answer, it has failed. */
void ZmtpTransport::took(Connection& connection) {
  const zmtp::Session& session = connection.session;
  connection.has_stood |= session.state() == State::open;
  if (!connection.origin.is_route && session.state() == State::open) {
    Outgoing& out = outgoing_.at(connection.origin.name);
    if (!out.is_up) events_.push_back(core::Connected{connection.origin.name, ""});
    out.is_up = out.has_stood = true;
    out.retry_s = kRetryS;
  }
  for (Frames& frames : messages_) {
    connection.has_spoken = true;
    events_.push_back(decoded(connection, std::move(frames)));
  }
  messages_.clear();
  if (connection.has_spoken) silent_.erase(connection.id);
  if (!session.unsent().empty()) write(connection);
  soon(session.deadline());
  if (session.state() == State::failed) close(connection.id, session.failure());
}

Event ZmtpTransport::decoded(const Connection& connection, Frames frames) const {
  try {
    messages::AnyMessage message = decode(frames.front().text(), header_limit_);
    frames.erase(frames.begin());
    return core::Received{connection.origin, connection.session.user(), std::move(message), std::move(frames)};
  } catch (const Error& error) {
    return core::Unreadable{connection.origin, error};
  }
}

void ZmtpTransport::write(Connection& connection) {
  zmtp::Session& session = connection.session;
  while (!session.unsent().empty()) {
    const std::string_view unsent = session.unsent();
    const ssize_t size = ::send(connection.socket.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL);
    if (size >= 0) {
      session.sent(static_cast<std::size_t>(size));
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      session.sent(unsent.size());  // reading tells of the end, behind what still came
    }
  }
  const bool waits = !session.unsent().empty();
  if (waits == connection.waits_to_write) return;
  connection.waits_to_write = waits;
  waits ? ++unsent_ : --unsent_;
  control(epoll_, EPOLL_CTL_MOD, connection.socket.get(), waits ? EPOLLIN | EPOLLOUT : EPOLLIN, connection.id);
}

std::unique_ptr<ZmtpTransport::Connection> ZmtpTransport::extract(Id id) {
  auto taken = std::move(connections_.extract(id).mapped());
  if (taken->waits_to_write) --unsent_;
  return taken;
}

void ZmtpTransport::close(Id id, Failure failure) {
  const auto closed = extract(id);
  silent_.erase(id);
  if (closed->origin.is_route) {
    routes_.erase(closed->origin.name);
    strangers_ += !closed->has_stood && !closed->has_spoken;
    if (closed->has_spoken) events_.push_back(core::Disconnected{closed->origin});
    return;
  }
  Outgoing& out = outgoing_.at(closed->origin.name);
  if (std::exchange(out.is_up, false)) events_.push_back(core::Disconnected{closed->origin});
  else if (fails_for_good(out, failure)) events_.push_back(core::Rejected{closed->origin.name});
  retry_later(out);
}

}  // namespace partc::shell
