#include "core/links/callers.hpp"

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/text.hpp"

namespace partc::core {
namespace {

constexpr const char* BUILD_HINT = "copy the folders of one build to all devices";

}  // namespace

Map<std::string, Origin> Callers::devices() const {
  Map<std::string, Origin> found;
  for (const auto& [route, name] : names_) {
    if (name != CLIENT) found.set(name, route);
  }
  return found;
}

std::optional<std::string> Callers::name_of(const Origin& origin) const {
  if (!origin.is_route) return origin.name;
  const std::string* found = names_.find(origin);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

void Callers::came(const Received& event, const messages::Hello& hello, Actions& out) {
  if (hello.name != CLIENT) supersede(event, hello, out);
  names_.set(event.origin, hello.name);
  last_.set(hello.name, {event.origin, hello.session});
}

std::optional<std::string> Callers::gone(const Origin& origin) {
  greetings_.erase(origin);
  std::optional<std::string> name = name_of(origin);
  names_.erase(origin);
  return name;
}

std::vector<Greeting> Callers::greeted_before(const std::string& device) const {
  std::vector<Greeting> found;
  for (const auto& [route, greeting] : greetings_) {
    if (greeting.hello.name == device) found.push_back(greeting);
  }
  return found;
}

std::optional<Greeting> Callers::greeting(const Received& event) const {
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

/// Forget the former connection of a device that greets on another one: its end may be noticed much later.
///
/// The former greeting is kept until its connection ends: after a standstill of this process, the greetings of two lives
/// are read in any order, and somebody else with the device's key may greet in its name.
void Callers::supersede(const Received& event, const messages::Hello& hello, Actions& out) {
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

void check_greeting(const Role& role, const messages::Hello& hello, const std::optional<std::string>& user) {
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

}  // namespace partc::core
