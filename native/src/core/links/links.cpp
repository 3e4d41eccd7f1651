#include "core/links/links.hpp"

#include "core/links/rights.hpp"
#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/message_parts.hpp"

namespace partc::core {
namespace {

/// Messages that are not about links.
template <class Kind>
concept OfOtherParts = !OneOf<Kind, messages::Data, messages::Ack, messages::Welcome, messages::Refuse>;

}  // namespace

Links::Links(RolePtr role, std::uint64_t incarnation, Info info)
    : incoming(role, callers),
      outgoing(role, incarnation),
      role_(std::move(role)),
      incarnation_(incarnation),
      info_(std::move(info)) {}

std::optional<Origin> Links::way_to(const std::string& device) const {
  if (outgoing.is_up(device)) return Origin{device};
  const Map<std::string, Origin> all = devices();
  const Origin* found = all.find(device);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

void Links::connect(const std::string& device, Actions& out) {
  if (!outgoing.add(device)) return;
  const std::string* address = addresses.find(device);
  out.push_back(Connect{device, address == nullptr ? "" : *address});
}

void Links::moved(const Map<std::string, std::string>& to, Actions& out) {
  for (const auto& [device, address] : to) found(device, address, out);
}

void Links::prepare(const Role& role, const Map<std::string, std::string>& to, Actions& out) {
  incoming.prepare(role);
  moved(to, out);
  for (const std::string& name : peers_of(role)) connect(name, out);
}

void Links::adopt(RolePtr role, Actions& out) {
  role_ = role;
  outgoing.adopt(role);
  incoming.adopt(std::move(role), out);
}

void Links::connected(const std::string& peer, const std::string& address, Actions& out) {
  out.push_back(outgoing.connected(peer, address));
}

void Links::disconnected(const Origin& origin, Actions& out) {
  if (!origin.is_route) {
    outgoing.disconnected(origin.name);
    out.push_back(Lost{origin.name, origin});
  } else if (const std::optional<std::string> name = callers.gone(origin)) {
    out.push_back(Lost{*name, origin});
    ask_former(*name, out);
  }
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

void Links::distrust(const Origin& origin, Error error, Actions& out) const {
  const std::optional<std::string> peer = callers.name_of(origin);
  if (!peer || *peer == CLIENT) {
    out.push_back(Send{origin, messages::Refuse{messages::problem_of(error)}, {}});
    return;
  }
  if (error.where.empty()) error.where = *peer + " -> " + role_->device();
  out.push_back(Failed{{}, error});
}

void Links::message(const Received& event, double now, Actions& out) {
  if (const std::optional<Greeting> found = callers.greeting(event)) return welcome(found->event, found->hello, out);
  const std::optional<std::string> peer = callers.name_of(event.origin);
  if (!peer) return;  // left over from a connection that broke; `data` is sent again after `hello`
  if (!is_right(event.message, *peer, event.origin, *role_)) return;
  std::visit(Match{[&](const messages::Data& data) { incoming.take(*peer, data, event.frames, now, out); },
                   [&](const messages::Ack& ack) { outgoing.acknowledged(*peer, ack); },
                   [&](const messages::Welcome& answer) { outgoing.welcomed(*peer, answer, out); },
                   [&](const messages::Refuse& refuse) { out.push_back(Misfit{messages::error_of(refuse.problem)}); },
                   [&](const OfOtherParts auto&) {
                     out.push_back(Heard{*peer, event.origin, event.message, event.frames});
                   }},
             event.message);
}

/// Answer a greeting. Throws Error: it does not fit.
void Links::welcome(const Received& event, const messages::Hello& hello, Actions& out) {
  check_greeting(*role_, hello, event.user);
  callers.came(event, hello, out);
  messages::Welcome answer;
  answer.name = role_->device();
  answer.incarnation = incarnation_;
  std::tie(answer.epoch, answer.next) = incoming.greeted(hello.name, event.origin, hello.session);
  answer.first_request = first_request;
  answer.info = info_;
  out.push_back(Send{event.origin, answer, {}});
  greeted(event.origin, hello, out);
}

/// Note who a device is, and where; the source tells the others.
void Links::greeted(const Origin& origin, const messages::Hello& hello, Actions& out) {
  if (hello.name == CLIENT) return;
  const std::string* known = addresses.find(hello.name);
  const bool is_news = !hello.address.empty() && (known == nullptr || *known != hello.address);
  found(hello.name, hello.address, out);
  if (role_->is_source() && !addresses.empty()) {
    const messages::Addresses message{addresses};
    if (is_news) {
      out.push_back(Broadcast{message});
    } else {
      out.push_back(Send{origin, message, {}});
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
  const bool follows = outgoing.is_known(device) && (!before.empty() || outgoing.is_down(device));
  if (follows) out.push_back(Connect{device, address});
}

/// Ask for a sign of life where a device greeted before: one whose end is not noticed yet will not answer.
void Links::ask_former(const std::string& name, Actions& out) const {
  for (const auto& [event, hello] : callers.greeted_before(name)) {
    out.push_back(Send{event.origin, messages::Ping{hello.incarnation}, {}});
  }
}

}  // namespace partc::core
