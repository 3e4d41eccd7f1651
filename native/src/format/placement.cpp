#include "format/placement.hpp"

#include <algorithm>

#include "format/build.hpp"
#include "format/complaints.hpp"
#include "format/digests.hpp"
#include "format/facts.gen.hpp"
#include "format/json.hpp"
#include "format/text.hpp"

namespace partc::placement {
namespace {

/// Addresses do not count, since a device that moves computes the same.
std::string identity(Object raw) {
  raw.erase("placement_id");
  raw.erase("addresses");
  return data_digest({std::move(raw)});
}

std::string stages_problem(const Placement& placement, const std::string& phase, const std::set<std::string>& ring) {
  const std::vector<Stage>& stages = placement.stages.at(phase);
  for (std::size_t number = 0; number < stages.size(); ++number) {
    const std::string place = "stages." + phase + "[" + std::to_string(number) + "]: ";
    for (const std::string& device : stages[number].devices) {
      if (!ring.contains(device)) return place + in_quotes(device) + " is not in the ring";
    }
    if ((stages[number].share == "one") != (stages[number].devices.size() == 1)) {
      return place + "a stage is shared where it has several devices";
    }
  }
  return "";
}

std::string programs_problem(const Placement& placement, const std::set<std::string>& ring) {
  bool is_whole = placement.programs.contains("prefill") && placement.stages.size() == placement.programs.size();
  for (const auto& [phase, programs] : placement.programs) is_whole = is_whole && placement.stages.contains(phase);
  if (!is_whole) return "programs: stages and programs are for prefill and, with states, decode";
  for (const auto& [phase, programs] : placement.programs) {
    for (const std::string& device : ring) {
      if (!programs.contains(device)) return "programs." + phase + ": " + in_quotes(device) + " is missing";
    }
    for (const auto& [device, text] : programs) {
      if (!ring.contains(device)) return "programs." + phase + ": " + in_quotes(device) + " is not in the ring";
    }
    if (std::string problem = stages_problem(placement, phase, ring); !problem.empty()) return problem;
  }
  return "";
}

/// Every device that is named is in the ring, and every one of the ring has a program.
std::string problem_of(const Placement& placement) {
  const std::set<std::string> ring(placement.ring.begin(), placement.ring.end());
  if (ring.size() != placement.ring.size()) return "ring: a device stands twice";
  if (!ring.contains(placement.source)) return "source: " + in_quotes(placement.source) + " is not in the ring";
  for (const auto& [name, figure] : placement.predicted) {
    if (name != "prefill_s" && name != "decode_s" && name != "prefill_tokens") {
      return "predicted: " + in_quotes(name) + " is unknown";
    }
  }
  for (const std::string& device : ring) {
    if (!placement.addresses.contains(device)) return "addresses: " + in_quotes(device) + " is missing";
  }
  for (const auto& [name, holder] : placement.mirrors) {
    if (!placement.addresses.contains(holder)) {
      return "mirrors." + name + ": " + in_quotes(holder) + " is not among the addresses";
    }
  }
  return programs_problem(placement, ring);
}

void check_programs(const Placement& placement, const std::string& where) {
  Map<std::string, program::Programs> all;
  try {
    all = parsed(placement);
  } catch (const Error& error) {
    throw bundle_error(error.message, where + ": " + error.where, error.hint.empty() ? kRecompile : error.hint);
  }
  for (const auto& [phase, programs] : all) {
    const program::Fault fault = program::ring_fault(programs, placement.source);
    if (fault.device.empty()) continue;
    throw recompile(fault.device + " " + fault.message, where + ": programs." + phase + "." + fault.device);
  }
}

}  // namespace

Map<std::string, program::Programs> parsed(const Placement& placement) {
  Map<std::string, program::Programs> found;
  for (const auto& [phase, programs] : placement.programs) {
    program::Programs& of_phase = found[phase];
    for (const auto& [device, text] : programs) {
      of_phase.set(device, program::parse_program(text, "programs." + phase + "." + device));
    }
  }
  return found;
}

Map<std::string, std::set<std::string>> running(const Placement& placement) {
  Map<std::string, std::set<std::string>> found;
  for (const std::string& device : placement.ring) found[device];
  for (const auto& [phase, programs] : parsed(placement)) {
    for (const auto& [device, items] : programs) {
      for (const program::Instruction& item : items) {
        if (const program::Run* run = std::get_if<program::Run>(&item)) found[device].insert(run->submodule);
      }
    }
  }
  return found;
}

Placement seal_placement(Placement placement) {
  placement.placement_id = identity(std::get<Object>(write_placement(placement).data));
  return placement;
}

std::string placement_text(const Placement& placement) { return canonical_json(write_placement(placement)); }

Placement parse_placement(std::string_view text, const std::string& where) {
  Object raw = read_json_object(text, where);
  check_format(raw, PLACEMENT_FORMAT, where);
  const Value* id = raw.find("placement_id");
  if (id != nullptr && *id != Value{identity(raw)}) {
    throw recompile("the file is damaged: its placement_id does not fit", where);
  }
  Placement placement = converted(where, [&] { return read_placement({std::move(raw)}); });
  if (const std::string problem = problem_of(placement); !problem.empty()) throw recompile(problem, where);
  check_programs(placement, where);
  // Another writer may leave out what ours spells out; what is sent on is our text, and its id has to fit.
  return seal_placement(std::move(placement));
}

}  // namespace partc::placement
