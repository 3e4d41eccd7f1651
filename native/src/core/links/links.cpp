#include "core/links/links.hpp"

#include <algorithm>

#include "core/links/rights.hpp"
#include "core/links/windows.hpp"
#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/message_parts.hpp"
#include "format/text.hpp"

namespace partc::core {
namespace {

constexpr double ACK_AFTER_S = 0.1;
constexpr std::uint64_t MOST_SESSION = std::uint64_t{1} << 48;
constexpr const char* KEYS_HINT = "partc keys BUILD makes new keys; copy each device's keys folder to it again";
constexpr const char* BUILD_HINT = "copy the folders of one build to all devices";

}  // namespace

Links::Links(RolePtr role, std::uint64_t incarnation, Info info)
    : role_(std::move(role)),
      incarnation_(incarnation),
      info_(std::move(info)),
      headers_(role_),
      next_session_(incarnation % MOST_SESSION) {  // sessions of two lives differ because the incarnations do
  for (const std::string& name : peers_of(*role_)) out_.set(name, new_out(name));
  for (const std::string& name : role_->receive) in_.set(name, new_in(name));
}

Names Links::missing_for(const Role& role) const {
  Names found;
  for (const std::string& name : peers_of(role)) {
    const Outgoing* out = out_.find(name);
    if (out == nullptr || out->state != State::up) found.push_back(name);
  }
  return found;
}

std::optional<Origin> Links::way_to(const std::string& device) const {
  const Outgoing* out = out_.find(device);
  if (out != nullptr && out->state == State::up) return Origin{device};
  const Map<std::string, Origin> all = devices();
  const Origin* found = all.find(device);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

void Links::connect(const std::string& device, Actions& out) {
  if (out_.contains(device)) return;
  out_.set(device, new_out(device));
  const std::string* address = addresses.find(device);
  out.push_back(Connect{device, address == nullptr ? "" : *address});
}

void Links::moved(const Map<std::string, std::string>& to, Actions& out) {
  for (const auto& [device, address] : to) found(device, address, out);
}

void Links::prepare(const Role& role, const Map<std::string, std::string>& to, Actions& out) {
  for (const std::string& name : role.receive) {
    if (!in_.contains(name)) in_.set(name, new_in(name));
    in_.at(name).receiver.expect(role.epoch(), in_window(role, name));
  }
  moved(to, out);
  for (const std::string& name : peers_of(role)) connect(name, out);
}

void Links::adopt(RolePtr role, Actions& out) {
  role_ = std::move(role);
  headers_ = Headers(role_);
  Map<std::string, Incoming> kept;
  for (const std::string& name : role_->receive) kept.set(name, std::move(in_.at(name)));
  in_ = std::move(kept);
  for (const std::string& name : peers_of(*role_)) {
    Sender<Packet>& sender = out_to(name).sender;
    sender.restart(sender.session, role_->epoch(), out_window(*role_, name));
  }
  for (auto& [peer, link] : in_) {
    for (const Packet& packet : link.receiver.restart()) delivered(peer, packet, out);
  }
}

Map<std::string, Origin> Links::devices() const {
  Map<std::string, Origin> found;
  for (const auto& [route, name] : names_) {
    if (name != CLIENT) found.set(name, route);
  }
  return found;
}

void Links::connected(const std::string& peer, const std::string& address, Actions& out) {
  Outgoing& link = out_to(peer);
  link.state = State::greeting;
  address_ = address;
  out.push_back(Send{Origin{peer}, hello(link), {}});
}

void Links::disconnected(const Origin& origin, Actions& out) {
  if (!origin.is_route) {
    out_to(origin.name).state = State::down;
    out.push_back(Lost{origin.name, origin});
    return;
  }
  greetings_.erase(origin);
  const std::string* found = names_.find(origin);
  if (found == nullptr) return;
  const std::string name = *found;
  names_.erase(origin);
  out.push_back(Lost{name, origin});
  ask_former(name, out);
}

void Links::rejected(const std::string& peer, Actions& out) {
  out.push_back(Misfit{refused(peer + " and this device do not have each other's keys", role_->device(), KEYS_HINT)});
}

void Links::received(const Received& event, double now, Actions& out) {
  Actions found;
  try {
    message(event, now, found);
  } catch (const Error& error) {
    if (error.kind != ErrorKind::run) throw;
    distrust(event.origin, error, out);
    return;
  }
  out.insert(out.end(), found.begin(), found.end());
}

void Links::unreadable(const Unreadable& event, Actions& out) { distrust(event.origin, event.error, out); }

std::optional<Send> Links::send(const Forward& forward) {
  Outgoing& link = out_to(forward.peer);
  Sender<Packet>& sender = link.sender;
  messages::Data data;
  data.session = sender.session;
  data.epoch = sender.epoch;
  data.seq = sender.next_seq();
  data.phase = forward.step.phase;
  data.dims = forward.step.dims;
  data.rows = rows_of(forward.step, role_->model().max_batch);
  data.values = announced(forward.values, role_->types);
  if (forward.step.opening) data.open.push_back(*forward.step.opening);
  data.likely = forward.step.likely;
  Frames frames;
  for (const auto& [name, tensor] : forward.values) frames.push_back(tensor.bytes);
  sender.push({data, frames});
  if (link.state != State::up) return {};
  return Send{Origin{forward.peer}, std::move(data), std::move(frames)};
}

void Links::acknowledgements(double now, Actions& out) {
  for (auto& [peer, link] : in_) {
    if (link.due && now >= *link.due) acknowledge(link, out);
  }
  due_.reset();
  for (const auto& [peer, link] : in_) due_ = soonest({due_, link.due});
}

Links::Outgoing& Links::out_to(const std::string& peer) { return out_.at(peer); }

messages::Hello Links::hello(const Outgoing& out) const {
  messages::Hello hello;
  hello.name = role_->device();
  hello.session = out.sender.session;
  hello.plan = role_->plan_digest();
  hello.placement = role_->placement_digest();
  hello.epoch = role_->epoch();
  hello.incarnation = incarnation_;
  hello.address = address_;
  hello.shares = role_->model().step_requests > 1;
  return hello;
}

/// A link from a device that may have connected long ago.
Links::Incoming Links::new_in(const std::string& name) const {
  Incoming link{Receiver<Packet>(role_->epoch(), in_window(*role_, name)), Origin{"", true}, 0, {}};
  if (const auto* caller = callers_.find(name)) {
    link.origin = caller->first;
    link.receiver.open(caller->second);
  }
  return link;
}

Links::Outgoing Links::new_out(const std::string& name) {
  return {Sender<Packet>(out_window(*role_, name), next_session_++, role_->epoch())};
}

void Links::distrust(const Origin& origin, Error error, Actions& out) const {
  const std::optional<std::string> peer = name_of(origin);
  if (!peer || *peer == CLIENT) {
    out.push_back(Send{origin, messages::Refuse{messages::problem_of(error)}, {}});
    return;
  }
  if (error.where.empty()) error.where = *peer + " -> " + role_->device();
  out.push_back(Failed{{}, error});
}

std::optional<std::string> Links::name_of(const Origin& origin) const {
  if (!origin.is_route) return origin.name;
  const std::string* found = names_.find(origin);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

void Links::message(const Received& event, double now, Actions& out) {
  if (const std::optional<Greeting> found = greeting(event)) return welcome(found->event, found->hello, out);
  const std::optional<std::string> peer = name_of(event.origin);
  if (!peer) return;  // left over from a connection that broke; `data` is sent again after `hello`
  if (!is_right(event.message, *peer, event.origin, *role_)) return;
  if (const auto* item = std::get_if<messages::Data>(&event.message)) return data(*peer, *item, event.frames, now, out);
  if (const auto* ack = std::get_if<messages::Ack>(&event.message)) {
    Outgoing* link = out_.find(*peer);
    if (link == nullptr) throw refused(*peer + " acknowledges messages of a link that does not exist");
    return link->sender.acknowledge(ack->session, ack->epoch, ack->seq);
  }
  const auto* welcome = std::get_if<messages::Welcome>(&event.message);
  const auto* refuse = std::get_if<messages::Refuse>(&event.message);
  if (welcome != nullptr) return welcomed(*peer, *welcome, out);
  if (refuse != nullptr) {
    out.push_back(Misfit{messages::error_of(refuse->problem)});
  } else {
    out.push_back(Heard{*peer, event.origin, event.message, event.frames});
  }
}

/// Answer a greeting. Throws Error: it does not fit.
void Links::welcome(const Received& event, const messages::Hello& hello, Actions& out) {
  check_greeting(hello, event.user);
  if (hello.name != CLIENT) supersede(event, hello, out);
  names_.set(event.origin, hello.name);
  callers_.set(hello.name, {event.origin, hello.session});
  messages::Welcome answer;
  answer.name = role_->device();
  answer.incarnation = incarnation_;
  answer.epoch = role_->epoch();
  answer.first_request = first_request;
  answer.info = info_;
  if (Incoming* link = in_.find(hello.name)) {
    link->receiver.open(hello.session);
    link->origin = event.origin;
    answer.epoch = link->receiver.epoch;
    answer.next = link->receiver.acknowledgement();
  }
  out.push_back(Send{event.origin, answer, {}});
  greeted(hello, out);
}

/// Note who a device is, and where; the source tells the others.
void Links::greeted(const messages::Hello& hello, Actions& out) {
  if (hello.name == CLIENT) return;
  const std::string* known = addresses.find(hello.name);
  const bool is_news = !hello.address.empty() && (known == nullptr || *known != hello.address);
  found(hello.name, hello.address, out);
  if (role_->is_source() && !addresses.empty()) {
    const messages::Addresses message{addresses};
    if (is_news) {
      out.push_back(Broadcast{message});
    } else {
      out.push_back(Send{callers_.at(hello.name).first, message, {}});
    }
  }
  out.push_back(Greeted{hello});
}

/// A device can be reached at an address; a link that stands stays, unless the device was elsewhere before.
void Links::found(const std::string& device, const std::string& address, Actions& out) {
  const std::string* known = addresses.find(device);
  const std::string before = known == nullptr ? "" : *known;
  if (address.empty() || address == before || !role_->placement.addresses.contains(device)) return;
  addresses.set(device, address);
  const Outgoing* link = out_.find(device);
  if (link != nullptr && (!before.empty() || link->state == State::down)) out.push_back(Connect{device, address});
}

/// Hold a greeting against key, build and placement. Throws Error: it does not fit.
void Links::check_greeting(const messages::Hello& hello, const std::optional<std::string>& user) const {
  const Role& role = *role_;
  const std::string& name = hello.name;
  const bool is_device = name != role.device() && role.placement.addresses.contains(name);
  if (!is_device && !(name == CLIENT && role.is_source())) {
    throw refused(in_quotes(name) + " does not connect to " + role.device() + " in this build");
  }
  if (user && *user != name) {
    throw refused("the key of " + in_quotes(*user) + " does not belong to " + in_quotes(name), "", KEYS_HINT);
  }
  if (hello.plan != role.plan_digest()) {
    throw refused(role.device() + " runs build " + role.build->plan_id.substr(0, 12) + ", " + name + " has build " +
                      to_hex(hello.plan.data).substr(0, 12),
                  "", BUILD_HINT);
  }
  if (hello.epoch == 0 && role.epoch() == 0 && hello.placement != role.placement_digest()) {
    throw refused(name + " has another placement of this build than " + role.device(), "", BUILD_HINT);
  }
}

/// Forget the former connection of a device that greets on another one: its end may be noticed much later.
///
/// The former greeting is kept until its connection ends: after a standstill of this process, the greetings of two lives
/// are read in any order, and somebody else with the device's key may greet in its name.
void Links::supersede(const Received& event, const messages::Hello& hello, Actions& out) {
  greetings_.set(event.origin, {event, hello});
  std::vector<Origin> former;
  for (const auto& [route, name] : names_) {
    if (name == hello.name && route != event.origin) former.push_back(route);
  }
  for (const Origin& route : former) {
    names_.erase(route);
    out.push_back(Lost{hello.name, route});
  }
}

/// Ask for a sign of life where a device greeted before: one whose end is not noticed yet will not answer.
void Links::ask_former(const std::string& name, Actions& out) const {
  for (const auto& [route, greeting] : greetings_) {
    if (greeting.hello.name == name) out.push_back(Send{route, messages::Ping{greeting.hello.incarnation}, {}});
  }
}

std::optional<Links::Greeting> Links::greeting(const Received& event) const {
  const auto* hello = std::get_if<messages::Hello>(&event.message);
  if (hello != nullptr && event.origin.is_route) return Greeting{event, *hello};
  const auto* pong = std::get_if<messages::Pong>(&event.message);
  const Greeting* former = pong == nullptr ? nullptr : greetings_.find(event.origin);
  if (former == nullptr || former->hello.incarnation != pong->token) return {};
  for (const auto& [route, name] : names_) {
    if (route == event.origin || name == former->hello.name) return {};
  }
  return *former;
}

void Links::welcomed(const std::string& peer, const messages::Welcome& message, Actions& out) {
  Outgoing& link = out_to(peer);
  Sender<Packet>& sender = link.sender;
  if (message.epoch == sender.epoch) {
    if (!sender.can_resume(message.next)) {
      sender.restart(next_session_++, sender.epoch);
      out.push_back(Send{Origin{peer}, hello(link), {}});
      return;
    }
    sender.acknowledge(sender.session, sender.epoch, message.next);
  }
  link.state = State::up;
  for (const auto& [data, frames] : sender.unacknowledged()) out.push_back(Send{Origin{peer}, data, frames});
  out.push_back(Linked{peer, message.first_request});
}

void Links::data(const std::string& peer, const messages::Data& data, const Frames& frames, double now, Actions& out) {
  Incoming* link = in_.find(peer);
  // It has not come to the placement in force yet, or is ahead.
  if (link == nullptr && (data.epoch != 0 || role_->epoch() != 0)) return;
  if (link == nullptr) throw refused(peer + " sends no data here");
  const std::vector<Packet> came = link->receiver.accept(data.epoch, data.session, data.seq, {data, frames});
  // No acknowledgement: a sender that is ahead keeps the frame, and repeats it after `hello`.
  if (data.epoch != link->receiver.epoch) return;
  ++link->unacknowledged;
  if (link->unacknowledged >= ACK_EVERY) {
    link->due = now;
  } else if (!link->due) {
    link->due = now + ACK_AFTER_S;
  }
  due_ = soonest({due_, link->due});
  for (const Packet& packet : came) delivered(peer, packet, out);
}

/// Hold a message against the placement.
void Links::delivered(const std::string& peer, const Packet& packet, Actions& out) const {
  const auto& [data, frames] = packet;
  try {
    auto [step, values] = headers_.read(peer, data, frames);
    out.push_back(Delivered{peer, std::move(step), std::move(values)});
  } catch (const Error& error) {
    if (error.kind != ErrorKind::run) throw;
    // The fault is the device's that sent it, not the input's.
    const std::string place = error.where.empty() ? peer + " -> " + role_->device() : error.where;
    out.push_back(Failed{data.rows.front().request, refused(error.message, place, error.hint), true});
  }
}

void Links::acknowledge(Incoming& link, Actions& out) {
  link.unacknowledged = 0;
  link.due.reset();
  const Receiver<Packet>& receiver = link.receiver;
  if (!receiver.session) return;
  out.push_back(Send{link.origin, messages::Ack{*receiver.session, receiver.epoch, receiver.acknowledgement()}, {}});
}

Names peers_of(const Role& role) {
  std::set<std::string> found(role.send.begin(), role.send.end());
  found.insert(role.source());
  found.erase(role.device());
  return {found.begin(), found.end()};
}

}  // namespace partc::core
