#include "core/source/guessing.hpp"

#include <algorithm>

#include "core/step.hpp"

namespace partc::core {
namespace {

/// Chance that a draft is right, for each of `DRAFT_LENGTHS`, before anything is known; and the tokens it counts for.
constexpr std::array<double, DRAFT_LENGTHS.size()> PRIOR{0.85, 0.75, 0.6, 0.45, 0.3, 0.15};
constexpr double PRIOR_WEIGHT = 6.0;
/// What of a count remains when another token comes.
constexpr double KEPT = 0.98;
/// A stage takes so much longer than it computes: it receives and sends.
constexpr double SLACK = 1.05;
/// Weight of the last time in a mean.
constexpr double NEW = 0.2;
/// Steps that arrive so much further apart than they left have waited for each other.
constexpr double QUEUED = 1.5;

double mean(double before, double value) { return before != 0.0 ? before + NEW * (value - before) : value; }

}  // namespace

Guessing::Guessing() {
  for (std::size_t at = 0; at < PRIOR.size(); ++at) right_[at] = PRIOR[at] * PRIOR_WEIGHT;
  all_.fill(PRIOR_WEIGHT);
}

void Guessing::came(std::optional<double> lap_s, std::optional<double> busy_s) {
  if (lap_s) lap_s_ = mean(lap_s_, *lap_s);
  if (busy_s) stage_s_ = mean(stage_s_, *busy_s);
  link_s_ *= KEPT;
}

void Guessing::apart(double left_s, double arrived_s) {
  if (arrived_s > QUEUED * left_s) link_s_ = mean(link_s_, arrived_s);
}

void Guessing::scored(const Draft& draft, std::uint64_t token) {
  right_[draft.length] = right_[draft.length] * KEPT + (draft.token == token ? 1.0 : 0.0);
  all_[draft.length] = all_[draft.length] * KEPT + 1.0;
}

std::uint64_t Guessing::most() const {
  const double slowest_s = std::max(stage_s_, link_s_);
  if (slowest_s == 0.0) return 1;
  const double room = std::min(lap_s_ / slowest_s, static_cast<double>(1 + MOST_GUESSED));
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(room));
}

double Guessing::pace_s() const { return std::max(SLACK * stage_s_, link_s_); }

}  // namespace partc::core
