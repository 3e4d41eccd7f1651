// When the source lets steps take guessed tokens: behind the token of a step, or while the true one is on its way
// (…/core/source/guessing.py).
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/source/drafts.hpp"

namespace partc::core {

/// No guess is sent that is right less often.
inline constexpr double LEAST_CHANCE = 0.1;

/// A guess that is right as often is counted on.
inline constexpr double SURE = 0.8;

/// What the source has learnt of its ring and of its drafts.
class Guessing {
 public:
  /// `costs`: tokens that a step may take, and thousandths of a step of one that it costs, as the build has it.
  Guessing(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& costs, std::uint64_t stages);

  /// A guess leaves.
  void guessed(double now) { guessed_at_ = now; }
  /// The first token of a true step has come, which took so many.
  void came(double began_s, double now, std::uint64_t tokens);
  /// A step of so many tokens is over, for which the busiest device computed so long.
  void timed(std::uint64_t tokens, double busy_s);
  /// The step of a guess that was right, and the one before: how far apart they left, and arrived, seconds.
  void apart(double left_s, double arrived_s);
  /// The token has come for which a draft stood, whether that was sent or not; none: there was none. `is_guessed`: the
  /// step that takes it is under way.
  void scored(const std::optional<Draft>& draft, std::uint64_t token, double now, bool is_guessed);
  /// Another placement is in force, of so many devices: its laps are others.
  void forget_times(std::uint64_t stages);

  /// Steps that the ring has room for; 1: none begins with a guess. A device alone has no time to fill.
  std::uint64_t most() const;
  /// Guesses that a step may take behind its own token; none before a lap is known.
  std::uint64_t most_further() const { return lap_s_ == 0.0 ? 0 : prices_.rbegin()->first - 1; }
  /// Tokens that a step takes, so that most come true in a time; one unless more are worth it. `chances`: how often the guess behind its own token is
  /// right, that and the next one, and so on.
  /// `time_s`: as long the slowest stage may take for it.
  std::uint64_t tokens(const std::vector<double>& chances, double time_s) const;
  /// Seconds of the lap of a step that takes so many tokens: all devices compute longer, and links send more.
  double lap_of(std::uint64_t tokens) const;
  /// Whether the slowest stage is done with a guess before a token is expected.
  bool has_time(double expected, double now) const;
  /// Whether guesses leave now: they pay, or it is tried whether they do.
  bool goes() const;
  /// Seconds between a step of so many tokens and a guess, so that the slowest stage is not kept from true ones.
  double pace_of(std::uint64_t tokens) const;
  /// How often drafts of this kind are right.
  double chance(const Draft& draft) const { return right_[draft.length] / all_[draft.length]; }

 private:
  bool pays() const;
  double slowest_of(std::uint64_t tokens) const;
  double price(std::uint64_t tokens) const;
  void priced(std::uint64_t tokens, double price);
  double rate(const std::vector<double>& chances, std::uint64_t tokens) const;

  /// Devices of the ring.
  double stages_;
  /// Tokens of a step → its time by that of one, on the busiest device.
  std::map<std::uint64_t, double> prices_{{1, 1.0}};
  /// The same, as the build has it.
  std::map<std::uint64_t, double> expected_;
  /// Tokens of a step → how often its price has shown.
  std::map<std::uint64_t, std::uint64_t> seen_;
  /// Seconds from the begin of a true step to its token: of those of one token, of all without guesses, of all with;
  /// 0: not known.
  double lap_s_ = 0.0, calm_s_ = 0.0, loud_s_ = 0.0;
  /// Seconds from a token to the next one that was guessed, of the busiest device, and of the busiest link.
  std::optional<double> gap_s_;
  double stage_s_ = 0.0, link_s_ = 0.0;
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
