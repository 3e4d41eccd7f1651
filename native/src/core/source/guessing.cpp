#include "core/source/guessing.hpp"

#include <algorithm>
#include <cmath>

#include "core/step.hpp"

namespace partc::core {
namespace {

/// Chance that a draft is right, for each of `DRAFT_LENGTHS`, before anything is known; and the tokens it counts for.
constexpr std::array<double, DRAFT_LENGTHS.size()> PRIOR{0.85, 0.75, 0.6, 0.45, 0.3, 0.15};
constexpr double PRIOR_WEIGHT = 6.0;
/// What of a count remains when another token comes.
constexpr double KEPT = 0.98;
/// A true step may wait for a guess as long as the rest of a stage: laps differ by as much.
constexpr double NEARLY = 0.9;
/// A stage takes so much longer than it computes: it receives and sends.
constexpr double SLACK = 1.05;
/// Weight of the last value in a mean.
constexpr double NEW = 0.1;
/// Steps that arrive so much further apart than they left have waited for each other.
constexpr double QUEUED = 1.5;
/// Values that are so many times the mean count as that.
constexpr double FAR = 3.0;
/// Guessing pays where tokens take no more than this share of the time without.
constexpr double WORTH = 0.98;
/// Of so many true steps so many go the other way.
constexpr std::uint64_t PERIOD = 128, TRIED = 2;

/// The mean with another value; one that is far off, since a device was away, counts for little.
double mean(double before, double value) {
  return before != 0.0 ? before + NEW * (std::min(value, FAR * before) - before) : value;
}

}  // namespace

Guessing::Guessing() {
  for (std::size_t at = 0; at < PRIOR.size(); ++at) right_[at] = PRIOR[at] * PRIOR_WEIGHT;
  all_.fill(PRIOR_WEIGHT);
}

void Guessing::came(double began_s, double now, std::optional<double> busy_s, bool is_sure) {
  if (is_sure) {
    const double lap_s = now - began_s;
    double& own = guessed_at_ >= began_s - lap_s_ ? loud_s_ : calm_s_;
    own = mean(own, lap_s);
    lap_s_ = mean(lap_s_, lap_s);
    ++steps_;
  }
  if (busy_s) stage_s_ = mean(stage_s_, *busy_s);
  link_s_ *= KEPT;
}

void Guessing::apart(double left_s, double arrived_s) {
  gap_s_ = mean(gap_s_, arrived_s);
  if (arrived_s > QUEUED * left_s) link_s_ = mean(link_s_, arrived_s);
}

void Guessing::scored(const std::optional<Draft>& draft, std::uint64_t token, double now, bool is_guessed) {
  const bool is_hit = draft && draft->token == token && chance(*draft) >= LEAST_CHANCE;
  hits_ += NEW * ((is_hit ? 1.0 : 0.0) - hits_);
  if (is_hit && guessed_at_ >= now - lap_s_) reach_ += NEW * ((is_guessed ? 1.0 : 0.0) - reach_);
  if (!draft) return;
  right_[draft->length] = right_[draft->length] * KEPT + (draft->token == token ? 1.0 : 0.0);
  all_[draft->length] = all_[draft->length] * KEPT + 1.0;
}

bool Guessing::has_time(double began_s, double now) const { return now + NEARLY * slowest_s() <= began_s + lap_s_; }

bool Guessing::goes() const {
  const bool is_tried = steps_ % PERIOD < TRIED;
  return pays() != is_tried;
}

/// Whether tokens come sooner with guesses, as far as is known.
bool Guessing::pays() const {
  if (calm_s_ == 0.0 || loud_s_ == 0.0 || gap_s_ == 0.0) return true;
  const double share = hits_ * reach_;
  return (1.0 - share) * loud_s_ + share * gap_s_ < WORTH * calm_s_;
}

std::uint64_t Guessing::most() const {
  if (slowest_s() == 0.0) return 1;
  const double room = std::min(std::ceil(lap_s_ / slowest_s()), static_cast<double>(1 + MOST_GUESSED));
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(room));
}

double Guessing::pace_s() const { return std::max(SLACK * stage_s_, link_s_); }

}  // namespace partc::core
