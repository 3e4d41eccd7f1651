#include "core/source/ring_monitor.hpp"

#include "format/facts.gen.hpp"
#include "format/message_parts.hpp"
#include "format/text.hpp"

namespace partc::core {

void RingMonitor::watch(const Origin& origin, const messages::Watch& watch, double now, Actions& out) {
  try {
    watchers.watch(origin, watch, now);
  } catch (const Error& error) {
    out.push_back(Send{origin, messages::Error{watch.ticket, messages::problem_of(error)}, {}});
  }
}

void RingMonitor::sensed(const std::string& device, const messages::Sensed& sensed, double now) {
  if (watchers.is_watched) watchers.sensed(device, sensed.vitals, now);
}

void RingMonitor::greeted(const std::string& device) { away_.erase(device); }

void RingMonitor::gone(const std::string& device, double now) {
  away_.set(device, now);
  watchers.told.erase(device);
}

void RingMonitor::broken(const Names& devices) {
  for (const std::string& device : devices) {
    if (counted_.insert(device).second) ++losses_[device];
  }
}

void RingMonitor::mended() { counted_.clear(); }

void RingMonitor::replaced(const Replaced& replaced) {
  broken(replaced.devices);
  counted_.clear();
  if (!replaced.devices.empty()) cause_ = shortened("lost " + joined(replaced.devices, ", "), LONGEST_CAUSE);
  if (cause_.empty()) cause_ = "the source began anew";
}

void RingMonitor::adopt(const Adopt& adopt, double now) {
  if (adopt.wish) ++moves_;
  std::string cause = cause_;
  if (adopt.wish) cause = adopt.wish->reason.empty() ? "a client asked for it" : adopt.wish->reason;
  cause_.clear();
  changes_.emplace_back(now, messages::Change{adopt.role->epoch(), 0.0, cause, adopt.stopped_s});
  if (changes_.size() > KEPT_CHANGES) changes_.pop_front();
  if (watchers.is_watched) schedule_.deadlines.patience.pace.emplace();
}

void RingMonitor::look(double now, Actions& out) {
  if (!watchers.is_watched) return;
  std::set<std::string> devices{schedule_.role->device()};
  for (const auto& [name, origin] : links_.devices()) devices.insert(name);
  if (watchers.has_ended()) {
    schedule_.deadlines.patience.pace.reset();
    ask({true}, out);
  } else if (watchers.begins(devices, now)) {
    if (!schedule_.deadlines.patience.pace) schedule_.deadlines.patience.pace.emplace();
    ask({}, out);
  } else {
    for (const Watcher& watcher : watchers.answered(now)) {
      out.push_back(Send{watcher.origin, messages::Status{watcher.ticket, status(now)}, {}});
    }
  }
}

void RingMonitor::ask(const messages::Sense& sense, Actions& out) const {
  out.push_back(Broadcast{sense});
  out.push_back(Tell{schedule_.role->device(), sense, {}});
}

messages::RingStatus RingMonitor::status(double now) const {
  const placement::Placement& placement = schedule_.role->placement;
  messages::RingStatus ring;
  ring.epoch = placement.epoch;
  ring.placement = placement.placement_id;
  ring.predicted = placement.predicted;
  if (schedule_.deadlines.patience.pace) ring.steps = schedule_.deadlines.patience.pace->steps();
  const std::vector<JobPtr> running = schedule_.queue.running(), waiting = schedule_.queue.waiting();
  ring.running = running.size();
  ring.waiting = waiting.size();
  for (const std::vector<JobPtr>& jobs : {running, waiting}) {
    for (const JobPtr& job : jobs) ring.tokens_left += job->max_new_tokens - job->step();
  }
  Names names = placement.ring;
  std::set<std::string> others;
  for (const auto& [name, address] : placement.addresses) others.insert(name);
  for (const std::string& name : others) add_once(names, name);
  for (const std::string& name : names) ring.devices.push_back(device(name, now));
  for (const auto& [made, change] : changes_) {
    ring.changes.push_back(change);
    ring.changes.back().age_s = now - made;
  }
  ring.moves = moves_;
  return ring;
}

messages::DeviceStatus RingMonitor::device(const std::string& name, double now) const {
  const placement::Placement& placement = schedule_.role->placement;
  const std::vector<placement::Stage>* stages = placement.stages.find("decode");
  if (stages == nullptr || stages->empty()) stages = placement.stages.find("prefill");
  messages::DeviceStatus found;
  found.device = name;
  for (const placement::Stage& stage : *stages) {
    const bool is_here = std::find(stage.devices.begin(), stage.devices.end(), name) != stage.devices.end();
    if (is_here) found.submodules.push_back(stage.submodules);
  }
  found.is_present = name == schedule_.role->device() || links_.devices().contains(name);
  if (const Told* told = watchers.told.find(name)) {
    found.age_s = now - told->at;
    found.answer_s = told->answer_s;
    found.vitals = told->vitals;
  }
  if (const double* since = away_.find(name)) found.away_s = now - *since;
  const bool is_own = name == schedule_.role->device() && schedule_.role->model().step_requests > 1;
  found.shares = is_own || schedule_.sharing.takes(name);
  if (const auto losses = losses_.find(name); losses != losses_.end()) found.losses = losses->second;
  return found;
}

}  // namespace partc::core
