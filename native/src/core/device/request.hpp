// One request on one device, from its first step to its end; the table of its states is in
// partc/runtime/core/device/request.py.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device/under_way.hpp"

namespace partc::core {

enum class RequestState { opening, ready, computing, waiting, idle, closed };

class Request;
using RequestPtr = std::shared_ptr<Request>;

/// A request as one device knows it.
class Request {
 public:
  Request(ScriptPtr script, std::uint64_t number, std::uint64_t slot, messages::Sampling sampling, bool trace,
          double idle_since);
  /// A request that goes on from some step; `before` is what this device knew of it; null: nothing.
  Request(ScriptPtr script, const messages::Resumption& resumption, const Request* before, double now);

  const std::uint64_t number, slot;
  RequestState state = RequestState::opening;
  /// The steps that are over; the rows of all `steps` of them are in the states.
  std::vector<Timing> timings;
  std::uint64_t steps = 0;
  /// The step from which on it was last taken back.
  std::uint64_t branch = 0;

  /// Steps that are over, and will not be taken back: no token of theirs is a guess.
  std::uint64_t settled() const;
  /// (batch,) valid tokens in the cache before a step that is over, or the next one; none before the first.
  Counts position(std::uint64_t step) const;
  /// Go on behind rows that the slot has, before the first step.
  void begin_behind(const std::optional<messages::Reuse>& reuse);
  /// Take the other requests of a step that is about to begin here; all of them rest meanwhile.
  /// Throws Error: one of them is not at that step.
  void share(const Step& step, std::vector<RequestPtr> mates);
  /// Whether it computes a step under way that another request shares.
  bool shares_with(std::uint64_t other) const;
  /// Whether the step under way is that of several requests.
  bool shares() const { return !mates_.empty(); }
  /// Start a step whose inputs are here (on the source), once the last one is over or leaves room for it.
  /// Throws Error: it does not follow.
  void begin(const Step& step, const Tensors& inputs, double now);
  /// Take a message; on other devices than the source, the first message of a step starts it.
  /// Throws Error: the step does not fit the request, or the message came already.
  void deliver(const std::string& peer, const Step& step, const Tensors& values, double now, Actions& out);
  /// Go on until something must be computed, a message is missing, or the step is over.
  void advance(double now, Actions& out);
  /// Let steps go on to where they need the engine, which works for another one: no token waits for that. Those up to
  /// the one for which something has come do, in their order.
  void move(std::uint64_t step, double now, Actions& out);
  /// Take the result that `advance` asked for.
  void computed(const std::vector<Tensor>& values, double seconds, double now);
  void close();
  /// (step, message) that it waits for.
  std::optional<std::pair<std::uint64_t, program::Message>> waits_for() const;
  /// (sub-module or `sample`, phase) of what is computed; empty for several tokens, whose time is of no phase.
  std::pair<std::string, std::string> works_at() const;
  /// Steps under way that have run a sub-module, or run it.
  std::uint64_t begun(const std::string& submodule) const;
  /// When the earliest step under way that can go on began.
  double began_s() const;

 private:
  struct Early {
    std::string peer;
    Step step;
    Tensors values;
  };

  void go_on(Execution& execution, bool computes, double now, Actions& out);
  void settle();
  void take_back(const Step& step);
  bool is_void(const Step& step);
  bool begins_with(const Step& step) const;
  Execution& join(const Step& step, double now);
  Execution& start(const Step& step, const Tensors& inputs, double now);
  void check_follows(const Step& step) const;
  void finish(double now, Actions& out);
  void step_was_shared(std::uint64_t step, const Timing& timing, double now);
  bool is_early(const Step& step) const;

  ScriptPtr script_;
  messages::Sampling sampling_;
  bool trace_;
  double idle_since_;
  /// (batch,) valid tokens after each step of the prompt.
  std::vector<Counts> ends_;
  /// Phase of the last step.
  std::string phase_;
  /// Steps that begin here when the one before is over.
  std::deque<std::pair<Step, Tensors>> queued_;
  /// Messages of later steps.
  std::vector<Early> early_;
  /// The steps under way, and the one for which the engine works; null: for none.
  UnderWay under_way_;
  Execution* computing_ = nullptr;
  /// Whether the last steps may have taken guesses.
  bool guesses_ = false;
  /// Steps that are over of which it is known that no token of theirs was a guess, or that it was right.
  std::uint64_t sure_ = 0;
  /// The other requests of a shared step, in the order of their rows.
  std::vector<RequestPtr> mates_;
  /// Rows of an earlier request that step 0 goes on behind.
  std::optional<messages::Reuse> reuse_;
  /// Values of the first step that later ones read.
  Tensors kept_;
  /// Whether the next sub-module that runs finds the states of an earlier request.
  bool resets_ = true;
};

}  // namespace partc::core
