// One step of a request on one device, on its way through the program of its phase (…/core/device/execution.py).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/device/script.hpp"
#include "core/device/timings.hpp"

namespace partc::core {

/// A request as its rows in a step need it.
struct Row {
  std::uint64_t slot = 0;
  messages::Sampling sampling;
};

/// A step that is under way.
class Execution {
 public:
  /// `rows`: the request of each row that is a step of its own; `values`: what is there; `of_resets`: whether the
  /// next sub-module that runs finds the states of an earlier request.
  Execution(ScriptPtr script, Step of_step, std::vector<Row> rows, bool trace, Tensors values, Timing of_timing,
            bool of_resets);

  Step step;
  Timing timing;
  bool resets;
  /// Steps of its request that are over with it: those of its rows that have not been taken back.
  std::uint64_t tokens;
  /// Since when it waits for a message; never: it does not.
  std::optional<double> waiting_since;
  /// Since when it could go on.
  double ready_since = 0.0;
  /// Values for the client; and those that later steps read, none: nothing is said of them.
  Tensors emitted;
  std::optional<Tensors> kept;

  /// Whether no instruction is left.
  bool is_over() const { return at_ == program_->size(); }
  /// The first message that the instruction waits for and that has not come; null: none.
  const program::Message* awaited() const;
  /// Whether the instruction that it stands at may be carried out now, or none is left.
  bool can_go_on() const { return awaited() == nullptr; }
  /// The step as others are told of it: with the time of the busiest device, where that is wanted.
  Step as_told() const;
  /// The sub-module, or `sample`, at which it stands.
  std::string works_at() const;
  /// Whether it has run a sub-module, or runs it.
  bool has_begun(const std::string& submodule, bool is_computing) const;
  /// Take a message of this step. Throws Error: it came already.
  void deliver(const std::string& peer, const Step& of, const Tensors& values, double now, Actions& out);
  /// Go on until a message is missing, the step is over, or something must be computed: then it is true. Unless it
  /// `computes` it stops before that.
  bool advance(bool computes, Actions& out);
  /// Take the result that `advance` asked for.
  void computed(const std::vector<Tensor>& values, double seconds);
  /// Let all values go: nothing will follow, though something may still be computed.
  void drop();

 private:
  struct Come {
    Tensors values;
    double at = 0.0;
  };

  bool execute(const program::Instruction& instruction, Actions& out);
  bool run(const program::Run& item, Actions& out);
  bool makes_nothing(const program::Run& item, const build::Submodule& module, const Dims& dims);
  void receive(const program::Recv& instruction);
  void cut(const program::Cut& item);
  Tensor joined_parts(const program::Join& item) const;
  Tensor sum(const program::Names& terms) const;
  Draw draw(const std::string& name) const;
  Tensors named(const program::Names& names) const;
  void pass();

  ScriptPtr script_;
  std::vector<Row> rows_;
  bool trace_;
  Tensors values_;
  const std::vector<Line>* program_;
  std::size_t at_ = 0;
  /// Messages that have come; and all that have been there.
  std::map<program::Message, Come> inbox_;
  std::set<program::Message> came_;
};

}  // namespace partc::core
