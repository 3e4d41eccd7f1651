// The role of one device: its build and the placement of the whole ring, seen together (partc/format/role.py).
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "format/build.hpp"
#include "format/facts.gen.hpp"
#include "format/placement.hpp"
#include "format/program.hpp"

namespace partc {

/// One device's view of a build and a placement; what follows from them is worked out once.
class Role {
 public:
  /// Throws Error: a line of a program is no instruction.
  Role(std::shared_ptr<const build::Build> build, placement::Placement placement);

  const std::shared_ptr<const build::Build> build;
  const placement::Placement placement;

  const std::string& device() const { return build->device; }
  const std::string& source() const { return placement.source; }
  const std::vector<std::string>& ring() const { return placement.ring; }
  const build::Model& model() const { return build->model; }
  const Dims& dims() const { return build->dims; }
  std::uint64_t epoch() const { return placement.epoch; }
  bool is_source() const { return device() == source(); }
  /// Whether there are step inputs (every task but `graph`).
  bool has_step_inputs() const { return model().task != "graph"; }
  bool generates() const { return std::ranges::find(GENERATING, model().task) != GENERATING.end(); }
  /// Whether a request brings token ids; else a picture, a sound, or what an ONNX graph takes.
  bool takes_tokens() const;
  /// Whether each step rewrites states of a sub-module as a whole: they are those of its last step alone.
  bool rewrites(const std::string& submodule) const;
  /// Whether steps may take guessed tokens; a device alone has no time to fill, and needs several in one step.
  bool guesses() const {
    return model().drafts && generates() && (ring().size() > 1 || build::most_tokens(model()) > 1);
  }
  /// Whether it does so in a sub-module that the programs run.
  bool rewrites_any() const;
  /// Ids as they travel.
  Bytes plan_digest() const;
  Bytes placement_digest() const;

  /// Tensors of a request, given on the source, and those that it gets.
  Map<std::string, build::TensorType> inputs, outputs;
  /// Name → file that the engine can compute.
  Map<std::string, const build::Submodule*> submodules;
  /// Phase → program of this device; empty ones where it is not in the ring. `replay` and `chunk` are among them.
  program::Programs programs;
  /// The sub-modules that the programs run, in the order of a step; the build may hold more.
  std::vector<std::string> running;
  /// Device of the ring → the sub-modules that it runs.
  Map<std::string, std::set<std::string>> all_running;
  /// Sub-module that the programs run → the other device that keeps a copy of its rows; not of those where steps
  /// rewrite states: rows would be of no use without these.
  Map<std::string, std::string> mirrored;
  /// Devices that it receives from, and sends to.
  std::vector<std::string> receive, send;
  /// The type of every value that a program may name.
  Map<std::string, build::TensorType> types;
  /// Whether a device of the ring keeps values of first steps.
  bool keeps = false;

 private:
  void read_programs(const Map<std::string, program::Programs>& parsed);
  void read_types();
};

using RolePtr = std::shared_ptr<const Role>;

/// A role of the same build in another placement.
RolePtr role_of(const RolePtr& role, placement::Placement placement);

/// The build and the placement belong together, and the device can do what its programs say.
/// Throws Error: names the instruction that is wrong.
void check_role(const Role& role, const std::string& where);

/// Adds a name that is not there yet.
void add_once(std::vector<std::string>& names, const std::string& name);

}  // namespace partc
