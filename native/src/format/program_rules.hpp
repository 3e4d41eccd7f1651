// The rules of programs; the table of them is in partc/format/program_rules.py.
#pragma once

#include <set>
#include <string>

#include "format/build.gen.hpp"
#include "format/dims.hpp"
#include "format/map.hpp"
#include "format/program.hpp"

namespace partc::program {

/// Device → program.
using Programs = Map<std::string, Program>;

/// A broken rule.
struct Fault {
  /// Empty: no rule is broken.
  std::string device;
  std::string message;
};

/// A sub-module as programs call it, with its own inputs and outputs.
struct Call {
  Names inputs, outputs;
  bool has_states = false;
};

/// Types of values, and the largest value of every symbol: sizes are compared as they are then.
struct Types {
  const Map<std::string, build::TensorType>& of;
  const Dims& dims;
};

/// The first broken rule of one phase's programs together. O(instructions²) at worst.
Fault ring_fault(const Programs& programs, const std::string& source);

/// The first broken rule of one device's program; empty: none.
///
/// `given`: values that are there when a step begins. `calls`: by sub-module.
std::string device_fault(const Program& program, std::set<std::string> given, const Map<std::string, Call>& calls,
                         const Types& types);

/// The sizes of symbols in a call: `own` are the types of the sub-module's own inputs, `shapes` those of the values that
/// it is given, `dims` the sizes of the step.
Dims dims_of_call(const std::vector<const build::TensorType*>& own, const std::vector<Shape>& shapes, const Dims& dims);

}  // namespace partc::program
