#include "core/device/vitals.hpp"

#include <algorithm>

#include "format/message_parts.hpp"
#include "format/readings.hpp"

namespace partc::core {

void Monitor::computed(double seconds) {
  if (!meter_) return;
  const auto [name, phase] = requests_.works_at();
  if (!name.empty()) meter_->took(name, phase, seconds);
}

void Monitor::sense(const messages::Sense& sense, Actions& out) {
  if (sense.ends) {
    meter_.reset();
    return;
  }
  if (!meter_) meter_.emplace();
  out.push_back(ReadSensors{});
}

void Monitor::read(const messages::Readings& readings, Actions& out) {
  const Role& role = *requests_.script->role;
  messages::Vitals vitals;
  vitals.readings = readings;
  vitals.reached = reached(role.build->limits, readings);
  if (meter_) vitals.work = meter_->work();
  vitals.requests = requests_.in_flight();
  vitals.queue = requests_.queue();
  const Names missing = links_.missing();
  for (const std::string& peer : peers_of(role)) {
    vitals.links.set(peer, std::find(missing.begin(), missing.end(), peer) == missing.end());
  }
  out.push_back(Tell{role.source(), messages::Sensed{vitals}, {}});
}

void Monitor::adopt() {
  if (meter_) meter_.emplace();
}

}  // namespace partc::core
