#include "format/role.hpp"

#include <algorithm>
#include <utility>

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/text.hpp"

namespace partc {
namespace {

/// Values that every device has without a message, and their axis; all are int64.
constexpr std::pair<const char*, const char*> STEP_INPUTS[] = {
    {"position", "batch"}, {"length", "batch"}, {"index", "sequence"}};

std::set<std::string> kept(const program::Program& program) {
  const program::Names names = program::kept_by(program);
  return {names.begin(), names.end()};
}

build::TensorType int64(const char* axis) { return {"int64", {Size{std::string(axis)}}}; }

}  // namespace

Role::Role(std::shared_ptr<const build::Build> of_build, placement::Placement of_placement)
    : build(std::move(of_build)), placement(std::move(of_placement)) {
  for (const build::Port& port : build->inputs) inputs.set(port.name, {port.dtype, port.shape});
  for (const build::Port& port : build->outputs) outputs.set(port.name, {port.dtype, port.shape});
  for (const build::Submodule& submodule : build->submodules) submodules.set(submodule.name, &submodule);
  all_running = partc::placement::running(placement);
  read_programs(partc::placement::parsed(placement));
  read_types();
}

void Role::read_programs(const Map<std::string, program::Programs>& parsed) {
  for (const auto& [phase, all] : parsed) {
    for (const auto& [name, items] : all) keeps = keeps || !program::kept_by(items).empty();
    const program::Program* own = all.find(device());
    programs.set(phase, own == nullptr ? program::Program{} : *own);
  }
  if (const program::Program* decode = programs.find("decode")) {
    programs.set(std::string(program::REPLAY), program::tokenless(*decode));
    if (build::goes_in_parts(model())) {
      programs.set(std::string(program::CHUNK), program::tokenless(programs.at("prefill")));
    }
  }
  for (const auto& [phase, items] : programs) {
    for (const program::Instruction& item : items) {
      if (const program::Run* run = std::get_if<program::Run>(&item)) add_once(running, run->submodule);
      for (const program::Message& message : program::awaits(item)) add_once(receive, message.device);
      for (const program::Message& message : program::sends(item)) add_once(send, message.device);
    }
  }
  for (const std::string& name : running) {
    const std::string* keeper = placement.mirrors.find(name);
    if (keeper != nullptr && *keeper != device() && !rewrites(name)) mirrored.set(name, *keeper);
  }
}

void Role::read_types() {
  if (has_step_inputs()) {
    for (const auto& [name, axis] : STEP_INPUTS) types.set(name, int64(axis));
  }
  for (const auto& [phase, items] : programs) {
    for (const program::Instruction& item : items) {
      if (const program::Sample* sample = std::get_if<program::Sample>(&item)) types.set(sample->token, int64("batch"));
      const program::Emit* emit = std::get_if<program::Emit>(&item);
      if (emit == nullptr || !generates()) continue;
      for (const std::string& name : emit->values) types.set(name, int64("batch"));
    }
  }
  for (const auto& [name, type] : inputs) types.set(name, type);
  for (const auto& [name, type] : outputs) types.set(name, type);
  for (const auto& [name, type] : build->values) types.set(name, type);
}

bool Role::takes_tokens() const {
  const std::string_view own = model().start_tokens.empty() ? INPUT_IDS : SOURCE_IDS;
  return has_step_inputs() && inputs.contains(std::string(own));
}

bool Role::rewrites(const std::string& submodule) const {
  return std::ranges::any_of(submodules.at(submodule)->states, build::is_rewritten);
}

bool Role::rewrites_any() const {
  return std::ranges::any_of(running, [this](const std::string& name) { return rewrites(name); });
}

Bytes Role::plan_digest() const { return {from_hex(build->plan_id)}; }
Bytes Role::placement_digest() const { return {from_hex(placement.placement_id)}; }

RolePtr role_of(const RolePtr& role, placement::Placement placement) {
  return std::make_shared<const Role>(role->build, std::move(placement));
}

void check_role(const Role& role, const std::string& where) {
  if (role.build->plan_id != role.placement.plan_id) {
    throw recompile("build.json and placement.json are of different builds", where);
  }
  if (!role.placement.addresses.contains(role.device())) {
    throw recompile("device: '" + role.device() + "' is not among the addresses of placement.json", where);
  }
  std::set<std::string> given;
  for (const auto& [name, axis] : STEP_INPUTS) {
    if (role.has_step_inputs()) given.insert(name);
  }
  for (const auto& [name, type] : role.inputs) {
    if (role.is_source()) given.insert(name);
  }
  Map<std::string, program::Call> calls;
  for (const build::Submodule& module : role.build->submodules) {
    calls.set(module.name, {module.inputs, module.outputs, !module.states.empty()});
  }
  std::set<std::string> later = given;
  if (const program::Program* first = role.programs.find("prefill")) later.merge(kept(*first));
  for (const auto& [phase, items] : role.programs) {
    const bool is_later = phase == "decode" || phase == program::REPLAY;
    const std::string fault = program::device_fault(items, is_later ? later : given, calls, {role.types, role.dims()});
    if (fault.empty()) continue;
    throw recompile(fault, where + ": placement.json: programs." + phase + "." + role.device());
  }
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

}  // namespace partc
