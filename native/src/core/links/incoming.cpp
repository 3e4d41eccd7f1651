#include "core/links/incoming.hpp"

#include "core/links/windows.hpp"
#include "format/complaints.hpp"

namespace partc::core {
namespace {

constexpr double ACK_AFTER_S = 0.1;

}  // namespace

Incoming::Incoming(RolePtr role, const Callers& callers) : role_(std::move(role)), headers_(role_), callers_(callers) {
  for (const std::string& name : role_->receive) links_.set(name, new_link(name));
}

void Incoming::prepare(const Role& role) {
  for (const std::string& name : role.receive) {
    if (!links_.contains(name)) links_.set(name, new_link(name));
    links_.at(name).receiver.expect(role.epoch(), in_window(role, name));
  }
}

void Incoming::adopt(RolePtr role, Actions& out) {
  role_ = std::move(role);
  headers_ = Headers(role_);
  Map<std::string, Link> kept;
  for (const std::string& name : role_->receive) kept.set(name, std::move(links_.at(name)));
  links_ = std::move(kept);
  for (auto& [peer, link] : links_) {
    for (const Packet& packet : link.receiver.restart()) delivered(peer, packet, out);
  }
}

std::pair<std::uint64_t, std::uint64_t> Incoming::greeted(const std::string& name, const Origin& origin,
                                                          std::uint64_t session) {
  Link* link = links_.find(name);
  if (link == nullptr) return {role_->epoch(), 0};
  link->receiver.open(session);
  link->origin = origin;
  return {link->receiver.epoch, link->receiver.acknowledgement()};
}

void Incoming::acknowledgements(double now, Actions& out) {
  for (auto& [peer, link] : links_) {
    if (link.due && now >= *link.due) acknowledge(link, out);
  }
  due_.reset();
  for (const auto& [peer, link] : links_) due_ = soonest({due_, link.due});
}

void Incoming::take(const std::string& peer, const messages::Data& data, const Frames& frames, double now,
                    Actions& out) {
  Link* link = links_.find(peer);
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
void Incoming::delivered(const std::string& peer, const Packet& packet, Actions& out) const {
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

void Incoming::acknowledge(Link& link, Actions& out) {
  link.unacknowledged = 0;
  link.due.reset();
  const Receiver<Packet>& receiver = link.receiver;
  if (!receiver.session) return;
  out.push_back(Send{link.origin, messages::Ack{*receiver.session, receiver.epoch, receiver.acknowledgement()}, {}});
}

/// A link from a device that may have connected long ago.
Incoming::Link Incoming::new_link(const std::string& name) const {
  Link link{Receiver<Packet>(role_->epoch(), in_window(*role_, name)), Origin{"", true}, 0, {}};
  if (const auto* caller = callers_.last(name)) {
    link.origin = caller->first;
    link.receiver.open(caller->second);
  }
  return link;
}

}  // namespace partc::core
