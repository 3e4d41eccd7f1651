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
/// The part of a price that is forgotten with each step that does not show it.
constexpr double FORGOTTEN = 0.001;
/// Nothing takes less time, whatever devices tell.
constexpr double LEAST_S = 1e-9;
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

Guessing::Guessing(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& costs, std::uint64_t stages)
    : stages_(static_cast<double>(stages)) {
  for (const auto& [tokens, cost] : costs) prices_[tokens] = static_cast<double>(cost) / 1000.0;
  expected_ = prices_;
  for (std::size_t at = 0; at < PRIOR.size(); ++at) right_[at] = PRIOR[at] * PRIOR_WEIGHT;
  all_.fill(PRIOR_WEIGHT);
}

void Guessing::came(double began_s, double now, std::uint64_t tokens) {
  const double lap_s = now - began_s;
  double& own = guessed_at_ >= began_s - lap_s_ ? loud_s_ : calm_s_;
  own = mean(own, lap_s);
  if (tokens == 1) lap_s_ = mean(lap_s_, lap_s);
  ++steps_;
}

/// What has not been measured lately becomes again what is expected of it: so it is tried again.
void Guessing::timed(std::uint64_t tokens, double busy_s) {
  link_s_ *= KEPT;
  busy_s = std::max(busy_s, LEAST_S);
  if (tokens == 1) {
    stage_s_ = mean(stage_s_, busy_s);
  } else if (stage_s_ != 0.0 && prices_.contains(tokens)) {
    priced(tokens, busy_s / stage_s_);
  }
  for (const auto& [other, expected] : expected_) {
    if (other == tokens) continue;
    double& price = prices_[other];
    price += FORGOTTEN * (expected - price);
  }
}

void Guessing::forget_times(std::uint64_t stages) {
  stages_ = static_cast<double>(stages);
  lap_s_ = calm_s_ = loud_s_ = stage_s_ = link_s_ = 0.0;
  gap_s_.reset();
  prices_ = expected_;
  seen_.clear();
}

void Guessing::apart(double left_s, double arrived_s) {
  const double gap_s = std::min(arrived_s, FAR * lap_s_);
  gap_s_ = gap_s_ ? *gap_s_ + NEW * (gap_s - *gap_s_) : gap_s;
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

bool Guessing::has_time(double expected, double now) const { return now + NEARLY * slowest_of(1) <= expected; }

std::uint64_t Guessing::tokens(const std::vector<double>& chances, double time_s) const {
  std::uint64_t best = 1;
  for (const auto& [size, price] : prices_) {
    if (size > 1 + chances.size() || NEARLY * slowest_of(size) > time_s) continue;
    if (rate(chances, size) > rate(chances, best)) best = size;
  }
  return rate(chances, 1) < WORTH * rate(chances, best) ? best : 1;
}

double Guessing::lap_of(std::uint64_t tokens) const {
  const double busy_s = std::min(lap_s_, stages_ * stage_s_);
  const double more_s = (price(tokens) - 1.0) * busy_s + static_cast<double>(tokens - 1) * link_s_;
  return std::max(LEAST_S, lap_s_ + more_s);
}

bool Guessing::goes() const {
  const bool is_tried = steps_ % PERIOD < TRIED;
  return pays() != is_tried;
}

/// Whether tokens come sooner with guesses, as far as is known.
bool Guessing::pays() const {
  if (calm_s_ == 0.0 || loud_s_ == 0.0 || !gap_s_) return true;
  const double share = hits_ * reach_;
  return (1.0 - share) * loud_s_ + share * *gap_s_ < WORTH * calm_s_;
}

std::uint64_t Guessing::most() const {
  if (stages_ < 2.0 || slowest_of(1) == 0.0) return 1;
  const double room = std::ceil(std::min(lap_s_ / slowest_of(1), static_cast<double>(1 + MOST_GUESSED)));
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(room));
}

double Guessing::pace_of(std::uint64_t tokens) const {
  return std::max(SLACK * stage_s_ * price(tokens), static_cast<double>(tokens) * link_s_);
}

double Guessing::slowest_of(std::uint64_t tokens) const {
  return std::max(stage_s_ * price(tokens), static_cast<double>(tokens) * link_s_);
}

double Guessing::price(std::uint64_t tokens) const {
  const auto found = prices_.find(tokens);
  return found == prices_.end() ? 1.0 : found->second;
}

/// A step of so many tokens has shown its price; what is not known yet of others follows it.
void Guessing::priced(std::uint64_t tokens, double shown) {
  const double weight = std::max(NEW, 1.0 / (2.0 + static_cast<double>(seen_[tokens]++)));
  double& own = prices_[tokens];
  own += weight * (std::min(shown, FAR * static_cast<double>(tokens)) - own);
  const double extra = expected_.at(tokens) - 1.0;
  for (const auto& [other, expected] : expected_) {
    if (other == 1 || seen_.contains(other) || extra <= 0.0) continue;
    const double follows = 1.0 + (expected - 1.0) * std::max(0.0, own - 1.0) / extra;
    prices_[other] = std::min(follows, static_cast<double>(other));
  }
}

/// Tokens that come true in a second where steps take so many: those under way at once come in one lap.
double Guessing::rate(const std::vector<double>& chances, std::uint64_t tokens) const {
  const std::size_t taken = std::min<std::size_t>(tokens * most(), 1 + chances.size());
  double right = 0.0;
  for (std::size_t at = 0; at + 1 < taken; ++at) right += chances[at];
  return (1.0 + right) / lap_of(tokens);
}

}  // namespace partc::core
