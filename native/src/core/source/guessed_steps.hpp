// Steps that take guessed tokens, of all requests: which drafts go next, and what follows from a token
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
  GuessedSteps(const Queue& queue, const Sharing& sharing)
      : guessing(sharing.role->model().step_tokens, sharing.role->ring().size()), queue_(queue), sharing_(sharing) {}

  Guessing guessing;
  /// When `begin` must be called; never: there is nothing to guess before another token comes.
  Due due;

  /// Begin steps with guessed tokens, while the ring has room for them that nothing else wants.
  void begin(double now, Actions& out);
  /// The begin of a step that no other request shares, with guesses behind its token where that is worth it.
  Begin begin_alone(Job& job, Call call, double now);
  /// A step is over, and tells how long the busiest device computed for it.
  void timed(const Step& step);
  /// A new token is there; whether the step that takes it is under way.
  bool took(Job& job, const Step& step, std::uint64_t token, double now);

 private:
  std::uint64_t under_way() const;
  double follows_at() const;
  double expected() const;
  std::optional<std::pair<JobPtr, Guess>> best_draft(double now) const;
  Begin with_further(Job& job, Call call, double now, double time_s);
  std::vector<Guess> further(Job& job, double now, double time_s) const;

  const Queue& queue_;
  const Sharing& sharing_;
};

}  // namespace partc::core
