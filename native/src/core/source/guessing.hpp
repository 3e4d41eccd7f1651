// When the source begins a step with a guessed token, while the true one is on its way (…/core/source/guessing.py).
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "core/source/drafts.hpp"

namespace partc::core {

/// No guess is sent that is right less often.
inline constexpr double LEAST_CHANCE = 0.1;

/// A guess that is right as often is counted on.
inline constexpr double SURE = 0.8;

/// What the source has learnt of its ring and of its drafts.
class Guessing {
 public:
  Guessing();

  /// A guess leaves.
  void guessed(double now) { guessed_at_ = now; }
  /// The token of a step has come; whether its own was known, and how long the busiest device computed.
  void came(double began_s, double now, std::optional<double> busy_s, bool is_sure);
  /// A step of a guess that was right, and the one before: how far apart they left, and arrived, seconds.
  void apart(double left_s, double arrived_s);
  /// The token has come for which a draft stood, whether that was sent or not; none: there was none. `is_guessed`: the
  /// step that takes it is under way.
  void scored(const std::optional<Draft>& draft, std::uint64_t token, double now, bool is_guessed);
  /// Another placement is in force: its laps are others.
  void forget_times() { lap_s_ = calm_s_ = loud_s_ = gap_s_ = stage_s_ = link_s_ = 0.0; }

  /// Steps that the ring has room for; 1: nothing is guessed.
  std::uint64_t most() const;
  /// Whether the slowest stage is done with a guess before the token of a step is expected that began then.
  bool has_time(double began_s, double now) const;
  /// Whether guesses leave now: they pay, or it is tried whether they do.
  bool goes() const;
  /// Seconds between a step and a guess behind it, so that the slowest stage is not kept from true ones.
  double pace_s() const;
  /// How often drafts of this kind are right.
  double chance(const Draft& draft) const { return right_[draft.length] / all_[draft.length]; }

 private:
  bool pays() const;
  double slowest_s() const { return std::max(stage_s_, link_s_); }

  /// Seconds from the begin of a true step to its token: of all, of those without guesses, of those with; 0: not known.
  double lap_s_ = 0.0, calm_s_ = 0.0, loud_s_ = 0.0;
  /// Seconds from a token to the next one that was guessed, of the busiest device, and of the busiest link.
  double gap_s_ = 0.0, stage_s_ = 0.0, link_s_ = 0.0;
  /// Share of tokens for which a draft stood that was right, and would be sent.
  double hits_ = 0.0;
  /// Share of these whose guess was under way, while guesses left.
  double reach_ = 1.0;
  /// When the last guess left; true steps whose tokens have come.
  double guessed_at_ = -std::numeric_limits<double>::infinity();
  std::uint64_t steps_ = 0;
  std::array<double, DRAFT_LENGTHS.size()> right_{}, all_{};
};

}  // namespace partc::core
