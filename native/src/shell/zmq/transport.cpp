#include "shell/zmq/transport.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/liveness.hpp"
#include "errors.hpp"
#include "format/codec.hpp"
#include "format/text.hpp"
#include "shell/addresses.hpp"
#include "shell/descriptors.hpp"

namespace partc::shell {
namespace {

constexpr const char* kZapEndpoint = "inproc://zeromq.zap.01";
constexpr const char* kZapDomain = "partc";
constexpr int kBatch = 64;
constexpr std::int64_t kEncryptionBytes = 64;  // more than CURVE adds to a frame (33), which counts for its limit
constexpr int kLingerMs = 300;
constexpr int kHandshakeMs = 10'000;  // who has not proven his name by then is disconnected
constexpr int kAuthTries = 3;
constexpr int kRetryMs = 20, kRetryAtMostMs = 250;  // a ring stands still meanwhile
constexpr int kConnectMs = 2000;  // the system alone would try for two minutes to reach who has left the network
constexpr int kRefused = ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
constexpr int kEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | kRefused;

bool brings_values(const Event& event) {
  const auto* received = std::get_if<core::Received>(&event);
  return received && std::holds_alternative<messages::Data>(received->message);
}

}  // namespace

/** Without detail, the other end hung up in the middle: it cannot read what we encrypted for another key, or it was just
being stopped. The first happens again at every try. Once a connection has stood, it is the second, or a router in
between that reaches nobody: it may last. */
bool ZmqTransport::Outgoing::fails_for_good(int event) {
  if (event & kRefused) return true;
  failures += event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL && !has_stood;
  return failures >= kAuthTries;
}

ZmqTransport::ZmqTransport(std::optional<Keys> keys, std::uint64_t frame_limit, double patience_s,
                           std::uint64_t header_limit)
    : keys_(std::move(keys)),
      frame_limit_(frame_limit),
      header_limit_(header_limit),
      heartbeat_ms_(std::max(50, static_cast<int>(std::min(patience_s, core::MOST_S) * 500))),
      context_(zmq_ctx_new(), zmq_ctx_term),
      most_silent_(most_silent()) {}

ZmqTransport::~ZmqTransport() {
  if (router_) router_->end_monitor();
  for (auto& [name, out] : outgoing_) out.socket.end_monitor();
}

Socket ZmqTransport::open(int kind, const std::string& address) {
  Socket socket(context_.get(), kind);
  socket.set(ZMQ_IPV6, is_six(address));  // always set, it would turn IPv4 addresses into IPv6 ones
  socket.set(ZMQ_LINGER, kLingerMs);
  socket.set(ZMQ_SNDHWM, 0);
  socket.set(ZMQ_MAXMSGSIZE, static_cast<std::int64_t>(frame_limit_) + kEncryptionBytes);
  socket.set(ZMQ_HEARTBEAT_IVL, heartbeat_ms_);
  socket.set(ZMQ_HEARTBEAT_TIMEOUT, 2 * heartbeat_ms_);
  if (keys_) {
    socket.set(ZMQ_CURVE_PUBLICKEY, keys_->public_key);
    socket.set(ZMQ_CURVE_SECRETKEY, keys_->secret_key);
  }
  return socket;
}

std::string ZmqTransport::listen(const std::string& address) {
  if (keys_) {
    zap_.emplace(context_.get(), ZMQ_REP);
    if (zap_->bind(kZapEndpoint)) throw internal_error("the authenticator cannot be reached");
  } else {
    require_loopback(address);
  }
  router_ = open(ZMQ_ROUTER, address);
  router_->set(ZMQ_ROUTER_MANDATORY, 1);
  router_->set(ZMQ_HANDSHAKE_IVL, kHandshakeMs);
  if (keys_) {
    router_->set(ZMQ_CURVE_SERVER, 1);
    router_->set(ZMQ_ZAP_DOMAIN, std::string(kZapDomain));
  }
  router_monitor_ = router_->monitor(context_.get(), kEvents);
  if (const int error = router_->bind("tcp://" + address)) {
    throw cannot_listen(error, zmq_strerror(error), address);
  }
  return router_->endpoint().substr(std::string("tcp://").size());
}

Socket ZmqTransport::dealer(const std::string& name, const std::string& address) {
  Socket socket = open(ZMQ_DEALER, address);
  socket.set(ZMQ_RECONNECT_IVL, kRetryMs);
  socket.set(ZMQ_RECONNECT_IVL_MAX, kRetryAtMostMs);
  socket.set(ZMQ_CONNECT_TIMEOUT, kConnectMs);
  if (!keys_) return socket;
  const auto key = keys_->peers.find(name);
  if (key == keys_->peers.end())
    throw bundle_error("there is no key of " + in_quotes(name), "keys",
                       "partc keys BUILD makes the keys of a build again");
  socket.set(ZMQ_CURVE_SERVERKEY, key->second);
  return socket;
}

void ZmqTransport::connect(const std::string& name, const std::string& address) {
  if (!has_port(address)) throw no_address(name, address);
  if (!keys_) require_loopback(address);
  if (const auto known = outgoing_.find(name); known != outgoing_.end()) {
    if (known->second.address == address) return;
    leave(name);
  }
  Socket socket = dealer(name, address);
  Socket monitor = socket.monitor(context_.get(), kEvents);
  if (socket.connect("tcp://" + address)) throw no_address(name, address);
  outgoing_.emplace(name, Outgoing{address, std::move(socket), std::move(monitor)});
}

/** Close the connection to a device; what it has not read is lost, as in a break. */
void ZmqTransport::leave(const std::string& name) {
  const auto found = outgoing_.find(name);
  if (found->second.is_up) left_.push_back(core::Disconnected{{name, false}});
  found->second.socket.end_monitor();
  found->second.socket.set(ZMQ_LINGER, 0);
  outgoing_.erase(found);
}

bool ZmqTransport::send(const core::Origin& origin, const messages::AnyMessage& message, const Frames& frames) {
  std::vector<Frame> all;
  if (origin.is_route) all.push_back(Frame::copy(origin.name));
  all.push_back(Frame::copy(encode(message)));
  all.insert(all.end(), frames.begin(), frames.end());
  if (origin.is_route) return router_ && router_->send(all);
  const auto out = outgoing_.find(origin.name);
  // ZeroMQ would keep the message for a connection to come. Its option against that (IMMEDIATE) drops what has arrived
  // but is not read when the connection breaks; so it is done here.
  return out != outgoing_.end() && out->second.is_up && out->second.socket.send(all);
}

/** The sockets that have something to tell; and watched files. */
ZmqTransport::Ready ZmqTransport::wait(std::optional<double> timeout_s, std::vector<Event>& inputs) {
  std::vector<zmq_pollitem_t> items;
  const auto add = [&](void* socket, int descriptor) { items.push_back({socket, descriptor, ZMQ_POLLIN, 0}); };
  for (const auto* socket : {&zap_, &router_monitor_, &router_})
    if (*socket) add((*socket)->get(), 0);
  for (const auto& [name, out] : outgoing_) {
    add(out.socket.get(), 0);
    add(out.monitor.get(), 0);
  }
  for (const int descriptor : watched_) add(nullptr, descriptor);
  const long most = 1'000'000'000;
  const long timeout_ms =
      timeout_s ? static_cast<long>(std::min<double>(most, std::ceil(std::max(0.0, *timeout_s) * 1000))) : -1;
  Ready ready;
  if (zmq_poll(items.data(), static_cast<int>(items.size()), timeout_ms) < 0) return ready;  // a signal came
  for (const zmq_pollitem_t& item : items) {
    if (!item.revents) continue;
    if (item.socket) ready.insert(item.socket);
    if (!item.socket) inputs.push_back(Input{item.fd});
  }
  return ready;
}

std::vector<Event> ZmqTransport::poll(std::optional<double> timeout_s) {
  if (!left_.empty()) return std::exchange(left_, {});
  std::vector<Event> inputs;
  const Ready ready = wait(timeout_s, inputs);
  const auto is_ready = [&](const std::optional<Socket>& socket) { return socket && ready.contains(socket->get()); };
  if (is_ready(zap_)) authenticate();
  // A connection's last message lies in its socket before the monitor tells of its end: so breaks come last. But the
  // monitor of the ROUTER is read first, since a new connection may already have an old one's number.
  const std::vector<Event> broken = is_ready(router_monitor_) ? read_router_monitor() : std::vector<Event>{};
  std::vector<Event> events, after;
  read_own_monitors(ready, events, after);
  const bool tells = is_ready(router_monitor_) || std::ranges::any_of(outgoing_, [&](const auto& item) {
                       return ready.contains(item.second.monitor.get());
                     });
  const Until until = tells ? Until::empty : Until::values;
  for (auto& [name, out] : outgoing_)
    if (ready.contains(out.socket.get()) || ready.contains(out.monitor.get())) receive(out.socket, name, until, events);
  if (is_ready(router_) || is_ready(router_monitor_)) receive(*router_, {}, until, events);
  for (const auto* more : {&std::as_const(after), &std::as_const(inputs), &broken})
    events.insert(events.end(), more->begin(), more->end());
  // Connections whose end was told before their first message was read.
  for (const int descriptor : incoming_.closed)
    if (const auto route = incoming_.routes.extract(descriptor))
      events.push_back(core::Disconnected{{route.mapped(), true}});
  incoming_.closed.clear();
  return events;
}

/** The messages that lie ready, but not so many that others starve; in a step of a ring only up to the first that brings
values, so that they do not pile up behind one another. */
void ZmqTransport::receive(Socket& socket, const std::optional<std::string>& name, Until until,
                           std::vector<Event>& events) {
  for (int count = 0; count < kBatch; ++count) {
    std::vector<Incoming> frames = socket.receive();
    if (frames.empty()) return;
    if (name) {
      events.push_back(read({*name, false}, {}, std::move(frames), 0));
    } else if (frames.size() > 1) {
      const std::string route(frames[0].frame.text());
      const int descriptor = frames[1].descriptor;
      incoming_.routes.emplace(descriptor, route);
      incoming_.silent.remove(descriptor);
      std::optional<std::string> user = keys_ ? frames[1].user : std::nullopt;
      events.push_back(read({route, true}, std::move(user), std::move(frames), 1));
    }
    if (until == Until::values && !events.empty() && brings_values(events.back())) return;
  }
}

Event ZmqTransport::read(const core::Origin& origin, std::optional<std::string> user, std::vector<Incoming> frames,
                         std::size_t first) {
  try {
    Frames rest;
    for (std::size_t i = first + 1; i < frames.size(); ++i) rest.push_back(std::move(frames[i].frame));
    return core::Received{origin, std::move(user), decode(frames[first].frame.text(), header_limit_), std::move(rest)};
  } catch (const Error& error) {
    return core::Unreadable{origin, error};
  }
}

/** The state of our own connections: events before the messages, and events after them. */
void ZmqTransport::read_own_monitors(const Ready& ready, std::vector<Event>& before, std::vector<Event>& after) {
  for (auto& [name, out] : outgoing_) {
    if (!ready.contains(out.monitor.get())) continue;
    for (const auto& [event, value] : told_by(out.monitor)) {
      if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
        out.is_up = out.has_stood = true;
        before.push_back(core::Connected{name, ""});
      } else if (event == ZMQ_EVENT_DISCONNECTED && out.is_up) {
        out.is_up = false;
        after.push_back(core::Disconnected{{name, false}});
      } else if (out.fails_for_good(event)) {
        after.push_back(core::Rejected{name});
      }
    }
  }
}

std::vector<Event> ZmqTransport::read_router_monitor() {
  std::vector<Event> broken;
  for (const auto& [event, descriptor] : told_by(*router_monitor_)) {
    if (event == ZMQ_EVENT_ACCEPTED) {
      incoming_.closed.erase(descriptor);
      strangers_ += !unproven_.insert(descriptor).second;  // the end of the one before was not told
      accepted(descriptor);
    }
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) unproven_.erase(descriptor);
    if (event != ZMQ_EVENT_DISCONNECTED) continue;
    incoming_.silent.remove(descriptor);
    strangers_ += unproven_.erase(descriptor);
    if (const auto route = incoming_.routes.extract(descriptor))
      broken.push_back(core::Disconnected{{route.mapped(), true}});
    else incoming_.closed.insert(descriptor);
  }
  return broken;
}

/** Hang up on the connection that has been silent longest, where there are too many of them: who says nothing may be
anybody, and every connection is an open file. ZeroMQ closes its own end when it notices. */
void ZmqTransport::accepted(int descriptor) {
  incoming_.silent.remove(descriptor);
  incoming_.silent.push_back(descriptor);
  if (incoming_.silent.size() <= most_silent_) return;
  shutdown(incoming_.silent.front(), SHUT_RDWR);
  incoming_.silent.pop_front();
}

/** Answer ZAP requests: 200 with the peer's name for a key that we know, else 400. */
void ZmqTransport::authenticate() {
  for (int count = 0; count < kBatch; ++count) {
    const std::vector<Incoming> asked = zap_->receive();
    if (asked.empty()) return;
    // version, request, domain, address, identity, mechanism, credentials
    std::string name;
    if (asked.size() > 6 && asked[5].frame.text() == "CURVE" && asked[6].frame.size == 32) {
      char key[41];
      zmq_z85_encode(key, reinterpret_cast<const std::uint8_t*>(asked[6].frame.data), 32);
      name = keys_->name_of(key);
    }
    std::vector<Frame> answer;
    for (std::size_t i = 0; i < 2; ++i) answer.push_back(i < asked.size() ? asked[i].frame : Frame::copy(""));
    for (const std::string& text : {std::string(name.empty() ? "400" : "200"),
                                    std::string(name.empty() ? "unknown key" : "OK"), name, std::string()})
      answer.push_back(Frame::copy(text));
    zap_->send(answer);
  }
}

}  // namespace partc::shell
