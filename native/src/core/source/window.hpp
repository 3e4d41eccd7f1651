// The window of one request: its guesses that are under way, in the order of their steps (…/core/source/window.py).
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "core/source/guessing.hpp"

namespace partc::core {

/// A token that a step under way takes for the one to come.
struct Guess {
  std::uint64_t token = 0;
  /// When the step began.
  double started = 0.0;
  /// How often this guess and all before it are right.
  double chance = 0.0;
  /// Whether it is the first token of its step.
  bool leads = true;
};

/// The guesses of one request.
class Window {
 public:
  explicit Window(Drafts of_drafts) : drafts(std::move(of_drafts)) {}

  /// What its tokens may be.
  Drafts drafts;
  std::deque<Guess> guesses;
  /// The step from which on the request was last taken back; 0: it never was, in the placement in force.
  std::uint64_t branch = 0;
  /// Guesses that steps took, and those that were right.
  std::uint64_t drafted = 0, accepted = 0;
  /// Whether the token of the step that is awaited was known when it began.
  bool is_sure = true;
  /// Tokens of the step whose token is awaited, and of the step that began last.
  std::uint64_t awaited_tokens = 1, last_tokens = 1;

  /// Guesses that may be under way besides.
  std::uint64_t room() const;
  /// Steps under way that begin with a guess.
  std::uint64_t steps() const;
  /// How often all guesses that are under way are right.
  double chance() const { return guesses.empty() ? 1.0 : guesses.back().chance; }
  /// Whether the guess for the awaited token is as good as right, so that no true step will follow from it.
  bool counts_on() const { return !guesses.empty() && guesses.front().chance >= SURE; }
  /// What the token behind the guesses may be, and behind more of them; none where it would end the answer.
  std::optional<Draft> draft(const std::set<std::uint64_t>& ends, const std::vector<Guess>& behind = {});
  /// A step that takes a guess begins.
  void add(const Guess& guess);
  /// The token of the step has come that began then: how far it and the one before left apart, and arrived.
  std::pair<double, double> apart(double started, double now);
  /// Whether the step that takes a new token is under way.
  bool has(std::uint64_t token) const { return !guesses.empty() && guesses.front().token == token; }
  /// Hold a new token against the guess for it; that, if it was right. Else all guesses are void.
  std::optional<Guess> compare(std::uint64_t token);
  /// A step begins whose token is known, and which takes no other so far.
  void step_begins();
  /// Another placement is in force: nothing is under way, and no branch has begun.
  void empty();

 private:
  /// When the step before began, and when the token of that came.
  std::pair<double, double> before_{};
};

}  // namespace partc::core
