// Times of what is done again and again, while somebody watches (partc/runtime/core/meter.py).
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/events.hpp"

namespace partc::core {

/// Medians of the last times of things that are done again and again.
class Meter {
 public:
  void took(const std::string& name, const std::string& phase, double seconds);
  /// All things, as sub-modules; or as steps, which need no name.
  std::vector<messages::Work> work() const;
  std::vector<messages::Steps> steps() const;

 private:
  struct Times {
    std::uint64_t count = 0;
    std::deque<double> last;
  };
  Map<std::pair<std::string, std::string>, Times> all_;
};

}  // namespace partc::core
