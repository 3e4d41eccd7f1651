#include "core/patience.hpp"

#include <algorithm>
#include <cstdio>

#include "format/text.hpp"

namespace partc::core {
namespace {

std::string formatted(const char* how, double number) {
  char text[64];
  std::snprintf(text, sizeof text, how, number);
  return text;
}

Error lost_peer(std::string message, std::string where, std::string hint) {
  return run_error(std::move(message), std::move(where), std::move(hint), "lost-peer");
}

}  // namespace

std::string short_number(double number) { return formatted("%g", number); }

void Patience::took(const std::string& phase, double seconds) {
  if (pace) pace->took("", phase, seconds);
  slowest_.set(phase, std::max(slowest_[phase], seconds));
}

double Patience::of(const Job& job, std::size_t running, double now) const {
  const bool is_decode = job.step() != 0;
  const std::string phase = is_decode ? "decode" : "prefill";
  const std::uint64_t longest = job.length.empty() ? 1 : *std::ranges::max_element(job.length);
  const std::uint64_t rows = std::max<std::uint64_t>(1, job.length.size());
  const double expected = step_s(role_->placement.predicted, phase, rows, is_decode ? 1 : longest);
  const double* slowest = slowest_.find(phase);
  const double patience =
      patience_s(expected * static_cast<double>(std::max<std::size_t>(1, running)), floor_s_, slowest ? *slowest : 0.0);
  bool works = false;
  for (const auto& [name, pong] : answers(job, now)) works = works || pong.computing;
  const bool is_slow = works && silent(job, now).empty();
  return is_slow ? COMPUTING_FACTOR * patience : patience;
}

Names Patience::silent(const Job& job, double now) const {
  const auto known = answers(job, now);
  Names found;
  for (const std::string& name : role_->ring()) {
    if (name != role_->device() && !known.contains(name)) found.push_back(name);
  }
  return found;
}

Error Patience::stalled(const Job& job, double patience, double now) const {
  const auto known = answers(job, now);
  const Names silent = this->silent(job, now);
  std::string what = joined(silent, ", ") + (silent.size() == 1 ? " does" : " do") + " not answer";
  Names culprits = silent;
  if (silent.empty()) {
    Names doing;
    for (const auto& [name, pong] : known) {
      doing.push_back(name + " " + pong.doing);
      if (pong.computing) culprits.push_back(name);
    }
    what = joined(doing, "; ");
  }
  return run_error("no progress for " + formatted("%.1f", patience) + " s in step " + std::to_string(job.step()) + ": " + what,
                   culprits.size() == 1 ? culprits.front() : "",
                   "start its runner again if it hangs; give the runners a larger --patience if it is only slow",
                   "stalled");
}

Map<std::string, messages::Pong> Patience::answers(const Job& job, double now) const {
  const double since = std::max(job.progress.since, now - floor_s_);
  Map<std::string, messages::Pong> found;
  for (const auto& [name, heard] : heard_) {
    if (heard.first >= since) found.set(name, heard.second);
  }
  return found;
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
  return lost_peer(sender + " has not reached " + receiver + " for " + short_number(seconds) + " s, though both are there",
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
