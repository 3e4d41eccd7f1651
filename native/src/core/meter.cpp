#include "core/meter.hpp"

#include <algorithm>

#include "format/facts.gen.hpp"

namespace partc::core {
namespace {

double median(const std::deque<double>& times) {
  std::vector<double> sorted(times.begin(), times.end());
  std::ranges::sort(sorted);
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

}  // namespace

void Meter::took(const std::string& name, const std::string& phase, double seconds) {
  Times& times = all_[{name, phase}];
  ++times.count;
  times.last.push_back(seconds);
  if (times.last.size() > WINDOW_STEPS) times.last.pop_front();
}

std::vector<messages::Work> Meter::work() const {
  std::vector<messages::Work> found;
  for (const auto& [key, times] : all_) found.push_back({key.first, key.second, times.count, median(times.last)});
  return found;
}

std::vector<messages::Steps> Meter::steps() const {
  std::vector<messages::Steps> found;
  for (const messages::Work& work : this->work()) found.push_back({work.phase, work.runs, work.seconds});
  return found;
}

}  // namespace partc::core
