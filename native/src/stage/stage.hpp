/** The work of one device for runtimes of others: its programs over its engine, without links (include/partc_stage.h). */
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/device/execution.hpp"
#include "engines/contract.hpp"
#include "format/role.hpp"

namespace partc::stage {

/** Where a value of a step comes from or goes to; the numbers are those of partc_stage.h. */
enum class Direction { given, received, sent, emitted, logits };

/** A value of the steps of a phase, as others see it. */
struct Port {
  std::string name, peer;
  Direction direction;
  int message;  // values of one message have the same number; -1: of none
  int order;    // number of the instruction
  const build::TensorType* type;

  bool is_input() const { return direction == Direction::given || direction == Direction::received; }
};

/** A state of a sub-module that the programs run, and the sizes of its rows. */
struct HeldState {
  std::string submodule;
  const build::State* declared;
  Shape rows;  // positions, heads, width
};

/** Memory of the caller for an output. */
struct Output {
  std::string name;
  const ElementType* type;
  std::span<std::byte> room;
  bool is_made = false;
};

/** A step as the caller describes it. */
struct Asked {
  std::string phase;
  Dims dims;
  core::Counts position, length;  // empty where there are no step inputs
  core::Counts slots;             // one, or one of each row
  std::vector<messages::Sampling> sampling;
};

/** What is wrong is the call. */
Error misused(std::string message, std::string where = "", std::string hint = "");

/** A stage: the engine of a device's folder with all loaded that its programs run. One thread at a time. */
class Stage {
 public:
  /** `threads`: that compute; 0: as the build says. Throws Error: the folder is damaged, or not for this machine. */
  Stage(const std::string& folder, std::uint64_t threads);

  const Role& role() const { return *role_; }
  /** Throws Error: there is no such phase. */
  const std::vector<Port>& ports(const std::string& phase) const;
  const std::vector<HeldState>& states() const { return states_; }
  /** The sizes of symbols in a step; those that the build does not know are left out. */
  Dims dims_of(std::uint64_t batch, std::uint64_t sequence, const Dims& further) const;
  /** Throws Error: the phase has no such value. */
  Shape shape_of(const Asked& asked, const std::string& value) const;

  void reset(std::uint64_t slot, std::uint64_t batch, const Dims& further);
  /** Compute a step as far as its inputs reach: the message that it waits for, none where it is over.

  Values of `inputs` point into memory of the caller; they are copied where the step goes on in a later call.
  */
  std::optional<program::Message> step(const Asked& asked, Tensors inputs, std::vector<Output>& outputs);
  Tensor read_rows(std::uint64_t slot, const HeldState& state, std::uint64_t row, std::uint64_t begin,
                   std::uint64_t end);
  void write_rows(std::uint64_t slot, const HeldState& state, std::uint64_t row, std::uint64_t begin,
                  const Tensor& rows);
  bool settle() { return engine_->settle(); }

 private:
  /** A step under way. */
  struct Running {
    core::Execution execution;
    std::size_t to_compute;  // sub-modules and draws that are left
    std::set<int> came{};    // messages
  };
  using RunningPtr = std::shared_ptr<Running>;
  /** The room of a request. */
  struct Slot {
    std::uint64_t batch = 0;  // sequences of its request; 0: it has not begun
    Tensors kept;
    RunningPtr running;
  };

  std::vector<Port> ports_of(const std::string& phase) const;
  core::Step step_of(const Asked& asked) const;
  Slot& begun(std::uint64_t slot);
  RunningPtr known(const Asked& asked, const core::Step& step);
  RunningPtr begin(const Asked& asked, const core::Step& step, const Tensors& inputs);
  void end(const Running& running);
  void check_outputs(const Asked& asked, const std::vector<Output>& outputs) const;
  void check_inputs(const Asked& asked, const Tensors& inputs, const RunningPtr& known) const;
  bool reaches_the_end(const Asked& asked, const Tensors& inputs, const RunningPtr& known) const;
  void deliver(Running& running, const Tensors& inputs);
  void compute(Running& running, std::vector<Output>& outputs);
  bool take(core::Action& action, Running& running, std::vector<Output>& outputs);
  std::vector<Tensor> computed(const core::Compute& task);

  RolePtr role_;
  core::ScriptPtr script_;
  std::unique_ptr<engines::Engine> engine_;
  Map<std::string, std::vector<Port>> ports_;
  std::vector<HeldState> states_;
  std::vector<Slot> slots_;
};

}  // namespace partc::stage
