// Rows of states as messages carry them: their parts, their shapes, and the checks of what comes (…/core/device/rows.py).
#pragma once

#include <string>
#include <vector>

#include "core/actions.hpp"
#include "format/role.hpp"

namespace partc::core {

/// One part of the rows of some steps.
struct Part {
  std::string state;
  std::uint64_t row = 0, begin = 0, end = 0;
};

/// A message about some steps, without rows.
messages::Rows header_of(std::uint64_t epoch, std::uint64_t request, const std::string& submodule, std::uint64_t begin,
                         std::uint64_t end);
/// All parts; `begin` is empty for the first step. With `whole`, states that steps rewrite are the last ones: a single
/// row each, of any size.
std::vector<Part> parts_of(const std::vector<build::State>& states, const Counts& begin, const Counts& end, bool whole);
/// The state that rows belong to. Throws Error: there is none.
const build::State& state_of(const Role& role, const messages::Rows& rows);
/// The rows of a part. Throws Error: they do not fit the state and the model.
Tensor checked(const messages::Rows& rows, const Frames& frames, const Role& role);

}  // namespace partc::core
