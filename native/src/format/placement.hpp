// placement.json: the whole ring, which a re-plan changes (partc/format/placement.py).
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "format/placement.gen.hpp"
#include "format/program.hpp"
#include "format/program_rules.hpp"

namespace partc::placement {

/// Phase → device → program. Throws Error: a line is no instruction.
Map<std::string, program::Programs> parsed(const Placement& placement);

/// Device of the ring → the sub-modules that it runs.
Map<std::string, std::set<std::string>> running(const Placement& placement);

/// The same with the placement id that belongs to its content.
Placement seal_placement(Placement placement);

/// The text of a placement as files and messages have it.
std::string placement_text(const Placement& placement);

/// Reads and checks the text of a placement. Throws Error: with the key that is wrong and the remedy.
Placement parse_placement(std::string_view text, const std::string& where);

}  // namespace partc::placement
