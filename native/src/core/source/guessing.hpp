// When the source begins a step with a guessed token, while the true one is on its way (…/core/source/guessing.py).
#pragma once

#include <array>
#include <optional>

#include "core/source/drafts.hpp"

namespace partc::core {

/// No guess is sent that is right less often.
inline constexpr double LEAST_CHANCE = 0.1;

/// What the source has learnt of its ring and of its drafts.
class Guessing {
 public:
  Guessing();

  /// Steps that began with a guess, of all requests; and those whose guess was right.
  std::uint64_t drafted = 0, accepted = 0;

  /// A token has come, so long after its step began, if nothing was ahead of that; and who was the busiest.
  void came(std::optional<double> lap_s, std::optional<double> busy_s);
  /// Two steps of a request left one after the other, and arrived: how far apart, seconds.
  void apart(double left_s, double arrived_s);
  /// The token has come for which a draft stood, whether that was sent or not.
  void scored(const Draft& draft, std::uint64_t token);
  /// Another placement is in force: its laps are others.
  void forget_times() { lap_s_ = stage_s_ = link_s_ = 0.0; }

  /// Steps that the ring has room for; 1: nothing is guessed.
  std::uint64_t most() const;
  /// Seconds between a step and a guess behind it, so that the slowest stage is not kept from true ones.
  double pace_s() const;
  /// How often drafts of this kind are right.
  double chance(const Draft& draft) const { return right_[draft.length] / all_[draft.length]; }

 private:
  /// Seconds of a lap, of the busiest device and of the busiest link; 0: not known, or no longer than a device.
  double lap_s_ = 0.0, stage_s_ = 0.0, link_s_ = 0.0;
  std::array<double, DRAFT_LENGTHS.size()> right_{}, all_{};
};

}  // namespace partc::core
