// Patience: how long a step may go without progress before a device counts as gone (partc/runtime/core/liveness.py).
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "format/map.hpp"

namespace partc::core {

/// The shortest time without progress after which a peer counts as gone, seconds.
inline constexpr double LEAST_PATIENCE_S = 5.0;
/// The time that requests wait for a device that is lost, seconds.
inline constexpr double REJOIN_S = 60.0;
/// The time that a request goes on whose client is gone, seconds.
inline constexpr double LINGER_S = 30.0;
/// The longest time that a command line may ask for, seconds: half of it has a place in 32 bits of milliseconds.
inline constexpr double MOST_S = 1e6;
inline constexpr double PLANNED_PROMPT_TOKENS = 32.0;
inline constexpr double PATIENCE_FACTOR = 4.0;
/// The multiple of the patience that a step may take while a device says that it computes.
inline constexpr double COMPUTING_FACTOR = 12.0;

/// A time, or never.
using Due = std::optional<double>;

/// Seconds that a step may go without progress.
inline double patience_s(double predicted_s, double floor_s, double slowest_s) {
  return std::max({floor_s, PATIENCE_FACTOR * predicted_s, PATIENCE_FACTOR * slowest_s});
}

/// The predicted seconds of a step of `rows` sequences with `tokens` new tokens each.
double step_s(const Map<std::string, double>& predicted, const std::string& phase, std::uint64_t rows,
              std::uint64_t tokens);

/// The first of some times that may be never.
inline Due soonest(std::initializer_list<Due> dues) {
  Due first;
  for (const Due& due : dues) {
    if (due && (!first || *due < *first)) first = due;
  }
  return first;
}

/// When something last moved.
struct Progress {
  double since = 0.0;

  void moved(double now) { since = now; }
  double expires(double patience) const { return since + patience; }
};

}  // namespace partc::core
