// One request at the source: what its client asked for, and how far it is (…/core/source/job.py).
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/liveness.hpp"
#include "core/source/inputs.hpp"
#include "core/source/window.hpp"

namespace partc::core {

/// A step and its inputs.
using Call = std::pair<Step, Tensors>;
/// The tokens of a step, one a sequence; none where it has ended before.
using Fresh = std::vector<std::optional<std::uint64_t>>;

/// State of a request at the source; the table of them is in partc/runtime/core/source/job.py.
enum class JobState { waiting, standing, stepping, reporting, over };

class Job {
 public:
  /// The client's connection; none: it is broken.
  std::optional<Origin> origin;
  /// The client's name for it.
  Bytes ticket;
  messages::Sampling sampling;
  bool trace = false;
  /// Whether it may share steps with others: one sequence, whose client does not ask that it is computed as alone.
  bool shares = false;
  /// Seconds on the source's clock, as all times here.
  double submitted = 0.0;
  Progress progress;
  /// Inputs of the first step, and its sizes.
  Tensors inputs;
  Dims dims;
  Counts position, length;
  std::uint64_t max_new_tokens = 0;
  std::set<std::uint64_t> stop;
  std::vector<Counts> tokens;
  /// The reason for each sequence's end: `stop` or `length`; empty while it goes on.
  Names finish;
  /// Token, from 0 → the probabilities that came with it.
  Map<std::uint64_t, Likelies> likely;
  /// The prompt, where its rows may be those of an earlier request, and those of a later one; else empty.
  Counts reusable;
  /// The rows of an earlier request that it goes on behind.
  std::optional<messages::Reuse> reuse;
  /// Its guesses; none: nothing is guessed.
  std::optional<Window> window;
  /// When the step began whose token is awaited.
  double started = 0.0;
  /// Steps that are over on all devices, in the placement in force.
  std::uint64_t over = 0;
  /// Set when it opens.
  std::optional<std::uint64_t> number;
  std::uint64_t slot = 0;
  /// The steps of the prompt.
  std::vector<Call> prompt;
  /// (batch,) each: the tokens of every step as they were drawn, also those of sequences that have ended.
  std::vector<Tensor> drawn;
  /// The step that begins next.
  std::uint64_t next_step = 0;
  JobState state = JobState::waiting;
  std::uint64_t replayed = 0, mismatches = 0;
  /// Device → how often it was lost while this request ran.
  Map<std::string, std::uint64_t> losses;
  Tensors outputs;
  /// Devices whose timings have not come yet.
  std::set<std::string> reports;

  /// Go over to another state. Throws Error: it does not follow this one.
  void become(JobState next);
  /// The step under way, if there is one, is over or given up.
  void stand();
  /// A step begins whose values are waited for.
  void step_begins(double now);
  /// Take one token per sequence; the new ones.
  Fresh take(const std::vector<std::int64_t>& fresh);
  /// Whether every sequence has ended.
  bool finished() const;
  /// Number of the token that it waits for, from 0.
  std::uint64_t step() const { return drawn.size(); }
  /// Steps that are over: their values are known.
  std::uint64_t reached() const { return drawn.empty() ? 0 : prompt.size() - 1 + drawn.size(); }
  /// Whether its next step makes a token, and nothing else comes before that.
  bool is_at_token() const { return !drawn.empty() && next_step >= prompt.size() && next_step + 1 >= reached(); }
  /// Steps that have begun, and are not over; tokens that one step takes are one.
  std::uint64_t under_way() const;
  /// The step from which on it was last taken back; 0: it never was.
  std::uint64_t branch() const { return window ? window->branch : 0; }
  /// Guesses that steps may take behind those under way: of tokens that are not known, while more are wanted.
  std::uint64_t may_guess() const;
  /// When the last of its steps under way began.
  double last_started() const { return window && !window->guesses.empty() ? window->guesses.back().started : started; }
  /// Tokens of the step whose token is awaited.
  std::uint64_t awaited_tokens() const { return window ? window->awaited_tokens : 1; }
  /// Tokens of the last of its steps under way.
  std::uint64_t last_tokens() const { return window ? window->last_tokens : 1; }
  /// A step that takes a guessed token begins; only where it has a window.
  Call guess(const Guess& guess);
  /// Whether a step that is over took a guess that was wrong, or came behind one.
  bool is_void(const Step& step) const { return step.branch != branch(); }
  /// Hold a new token against the guess for it; whether the step that takes it is under way. If it is not right the
  /// request is taken back: the next step begins a branch.
  bool compare(std::uint64_t token);
  /// Since when the request stands still: `now`, or an earlier time if no token has come since.
  double stands_since(double now);
  /// The tokens of a step as the client is told, and why each sequence has ended by then.
  std::pair<Fresh, Names> told(std::uint64_t token) const;
  /// Whether the client has not had these tensors; steps that are computed again bring them again.
  bool is_news(const messages::Crossed& crossed);
  /// Give it its number and its slot, and what it keeps of that; its first step is next.
  void open(std::uint64_t of_number, std::uint64_t of_slot, const Role& role,
            const std::optional<messages::Reuse>& of_reuse = {});
  /// The tokens whose rows lie in the states of all devices, where later requests may use them.
  Counts kept() const;
  /// The steps that begin now: up to the first one whose values are waited for.
  std::vector<Call> calls();
  /// Go on from a step that is over, or from the next one; from the first on, without rows of others.
  messages::Resumption rewind(std::uint64_t step, const Role& role);

 private:
  Call call(std::uint64_t step) const;
  Tensor token(std::uint64_t at) const;
  std::vector<Call> prompt_steps(const Role& role) const;

  std::set<std::tuple<std::string, std::string, std::uint64_t, Names>> crossed_;
  /// The token that was waited for when the request last stood still, and since when.
  std::optional<std::pair<std::uint64_t, double>> stood_;
};

using JobPtr = std::shared_ptr<Job>;

}  // namespace partc::core
