// Steps that begin with a guessed token, of all requests: which draft goes next, and what follows from a token
// (…/core/source/guessed_steps.py).
#pragma once

#include <optional>
#include <utility>

#include "core/source/queue.hpp"
#include "core/source/sharing.hpp"

namespace partc::core {

/// The guesses of all requests.
class GuessedSteps {
 public:
  GuessedSteps(const Queue& queue, const Sharing& sharing) : queue_(queue), sharing_(sharing) {}

  Guessing guessing;
  /// When `begin` must be called; never: there is nothing to guess before another token comes.
  Due due;

  /// Begin steps with guessed tokens, while the ring has room for them that nothing else wants.
  void begin(double now, Actions& out);
  /// A new token is there; whether the step that takes it is under way.
  bool took(Job& job, const Step& step, std::uint64_t token, double now);

 private:
  std::uint64_t under_way() const;
  double last_started() const;
  double true_since() const;
  std::optional<std::pair<JobPtr, Guess>> best_draft() const;

  const Queue& queue_;
  const Sharing& sharing_;
};

}  // namespace partc::core
