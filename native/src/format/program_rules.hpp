// The rules of programs; the table of them is in partc/format/program_rules.py.
#pragma once

#include <set>
#include <string>

#include "format/map.hpp"
#include "format/build.gen.hpp"
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

/// The first broken rule of one phase's programs together. O(instructions²) at worst.
Fault ring_fault(const Programs& programs, const std::string& source);

/// The first broken rule of one device's program; empty: none.
///
/// `given`: values that are there when a step begins. `calls`: the sub-modules' calls by name, with their own inputs and
/// outputs. `types`: of values.
std::string device_fault(const Program& program, std::set<std::string> given, const Map<std::string, Run>& calls,
                         const Map<std::string, build::TensorType>& types);

}  // namespace partc::program
