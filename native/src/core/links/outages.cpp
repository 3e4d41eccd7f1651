#include "core/links/outages.hpp"

#include <cstdio>

#include "format/text.hpp"

namespace partc::core {
namespace {

Error lost_peer(std::string message, std::string where, std::string hint) {
  return run_error(std::move(message), std::move(where), std::move(hint), "lost-peer");
}

}  // namespace

std::string short_number(double number) {
  char text[64];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

void Rejoin::begin(const Names& lost, double now) {
  if (since) return;
  since = now;
  devices = lost;
}

Error Rejoin::error() const {
  const std::string names = joined(devices, ", ");
  const std::string waited = limit_s != 0.0 ? " and did not come back within " + short_number(limit_s) + " s" : "";
  return lost_peer(names + " closed its connection" + waited, names,
                   "see what its runner says, start it again, and repeat the request");
}

bool Cut::found(const std::vector<LinkNames>& cut, double now) {
  const bool begins = !cut.empty() && !since;
  if (begins) {
    since = now;
  } else if (cut.empty()) {
    since.reset();
  }
  links = cut;
  return begins;
}

Error Cut::error() const { return not_reached(links.front().first, links.front().second, limit_s); }

Error not_reached(const std::string& sender, const std::string& receiver, double seconds) {
  return lost_peer(
      sender + " has not reached " + receiver + " for " + short_number(seconds) + " s, though both are there",
      sender + " -> " + receiver,
      "see that " + sender + " may connect to the address of " + receiver + " (a firewall, another network)");
}

Error not_joined(const Names& devices) {
  const std::string names = joined(devices, ", ");
  return lost_peer(names + " has not joined the ring", names,
                   "start its partc-runner, and see that addresses and keys are those of this build");
}

Error lost_twice(const std::string& device) {
  return lost_peer(device + " was lost twice while this request ran", device,
                   "see what its runner says before you repeat the request");
}

}  // namespace partc::core
