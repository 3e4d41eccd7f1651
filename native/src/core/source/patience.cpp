#include "core/source/patience.hpp"

#include <algorithm>
#include <cstdio>

#include "format/text.hpp"

namespace partc::core {
namespace {

std::string in_tenths(double number) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f", number);
  return text;
}

}  // namespace

void Patience::took(const std::string& phase, double seconds, std::uint64_t tokens) {
  if (pace && tokens == 1) pace->took("", phase, seconds);
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
  return run_error("no progress for " + in_tenths(patience) + " s in step " + std::to_string(job.step()) + ": " + what,
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

}  // namespace partc::core
