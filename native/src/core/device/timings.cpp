#include "core/device/timings.hpp"

#include <algorithm>
#include <set>

namespace partc::core {

void Timing::add(const Timing& later) {
  compute_s += later.compute_s;
  queue_s += later.queue_s;
  sent_bytes += later.sent_bytes;
  received_bytes += later.received_bytes;
  epoch = std::max(epoch, later.epoch);
  for (const auto& [peer, seconds] : later.wait_s) wait_s[peer] += seconds;
}

std::vector<Timing> by_token(const Timing& timing, std::uint64_t count) {
  std::vector<Timing> found{timing};
  for (std::uint64_t token = 1; token < count; ++token) {
    Timing& own = found.emplace_back();
    own.request = timing.request;
    own.step = timing.step + token;
    own.started_s = timing.started_s;
    own.epoch = timing.epoch;
  }
  return found;
}

std::vector<Timing> whole_steps(const std::vector<Timing>& timings) {
  Map<std::uint64_t, Timing> found;
  for (const Timing& timing : timings) {
    if (!found.contains(timing.step))
      found.set(timing.step, Timing{timing.request, timing.step, timing.started_s, 0.0, 0.0, 0, 0, {}, 0});
    found.at(timing.step).add(timing);
  }
  std::vector<Timing> steps;
  for (const auto& [step, timing] : found) steps.push_back(timing);
  return steps;
}

TimingTable timing_table(const std::vector<Timing>& timings) {
  std::set<std::string> peers;
  for (const Timing& timing : timings) {
    for (const auto& [peer, seconds] : timing.wait_s) peers.insert(peer);
  }
  TimingTable found{{"step", "started_s", "compute_s", "queue_s", "sent_bytes", "received_bytes", "epoch"}, {}};
  for (const std::string& peer : peers) found.columns.push_back("wait_s:" + peer);
  std::vector<double> table;
  for (const Timing& timing : timings) {
    table.insert(table.end(), {static_cast<double>(timing.step), timing.started_s, timing.compute_s, timing.queue_s,
                               static_cast<double>(timing.sent_bytes), static_cast<double>(timing.received_bytes),
                               static_cast<double>(timing.epoch)});
    for (const std::string& peer : peers) {
      const double* waited = timing.wait_s.find(peer);
      table.push_back(waited == nullptr ? 0.0 : *waited);
    }
  }
  const std::string_view bytes(reinterpret_cast<const char*>(table.data()), table.size() * sizeof(double));
  found.table = {element_type("float64"), {timings.size(), found.columns.size()}, Frame::copy(bytes)};
  return found;
}

}  // namespace partc::core
