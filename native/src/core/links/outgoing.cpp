#include "core/links/outgoing.hpp"

#include <set>

#include "core/links/windows.hpp"
#include "format/complaints.hpp"

namespace partc::core {
namespace {

constexpr std::uint64_t MOST_SESSION = std::uint64_t{1} << 48;

}  // namespace

Outgoing::Outgoing(RolePtr role, std::uint64_t incarnation)
    : role_(std::move(role)),
      incarnation_(incarnation),
      next_session_(incarnation % MOST_SESSION) {  // sessions of two lives differ because the incarnations do
  for (const std::string& name : peers_of(*role_)) links_.set(name, new_link(name));
}

Names Outgoing::missing_for(const Role& role) const {
  Names found;
  for (const std::string& name : peers_of(role)) {
    if (!is_up(name)) found.push_back(name);
  }
  return found;
}

bool Outgoing::is_up(const std::string& device) const {
  const Link* link = links_.find(device);
  return link != nullptr && link->state == State::up;
}

bool Outgoing::add(const std::string& device) {
  if (links_.contains(device)) return false;
  links_.set(device, new_link(device));
  return true;
}

void Outgoing::adopt(RolePtr role) {
  role_ = std::move(role);
  for (const std::string& name : peers_of(*role_)) {
    auto& sender = links_.at(name).sender;
    sender.restart(sender.session, role_->epoch(), out_window(*role_, name));
  }
}

Send Outgoing::connected(const std::string& peer, const std::string& address) {
  Link& link = links_.at(peer);
  link.state = State::greeting;
  address_ = address;
  return {Origin{peer}, hello(link), {}};
}

void Outgoing::welcomed(const std::string& peer, const messages::Welcome& message, Actions& out) {
  Link& link = links_.at(peer);
  auto& sender = link.sender;
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

void Outgoing::acknowledged(const std::string& peer, const messages::Ack& ack) {
  Link* link = links_.find(peer);
  if (link == nullptr) throw refused(peer + " acknowledges messages of a link that does not exist");
  link->sender.acknowledge(ack.session, ack.epoch, ack.seq);
}

std::optional<Send> Outgoing::send(const Forward& forward) {
  Link& link = links_.at(forward.peer);
  auto& sender = link.sender;
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
  data.busy_s = forward.step.busy_s;
  Frames frames;
  for (const auto& [name, tensor] : forward.values) frames.push_back(tensor.bytes);
  sender.push({data, frames});
  if (link.state != State::up) return {};
  return Send{Origin{forward.peer}, std::move(data), std::move(frames)};
}

Outgoing::Link Outgoing::new_link(const std::string& name) {
  return {{out_window(*role_, name), next_session_++, role_->epoch()}};
}

messages::Hello Outgoing::hello(const Link& link) const {
  messages::Hello hello;
  hello.name = role_->device();
  hello.session = link.sender.session;
  hello.plan = role_->plan_digest();
  hello.placement = role_->placement_digest();
  hello.epoch = role_->epoch();
  hello.incarnation = incarnation_;
  hello.address = address_;
  hello.shares = role_->model().step_requests > 1;
  return hello;
}

Names peers_of(const Role& role) {
  std::set<std::string> found(role.send.begin(), role.send.end());
  found.insert(role.source());
  found.erase(role.device());
  return {found.begin(), found.end()};
}

}  // namespace partc::core
