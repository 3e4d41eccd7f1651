#include "format/program_rules.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "format/text.hpp"

namespace partc::program {
namespace {

/// A message from device to device.
struct Travel {
  std::string sender, receiver;
  Names values;
  auto operator<=>(const Travel&) const = default;
};

using Counts = std::map<Travel, int>;

std::string ticked(const Instruction& instruction) { return "`" + print_instruction(instruction) + "`"; }

Fault address_fault(const Programs& programs, const std::string& source) {
  for (const auto& [device, items] : programs) {
    for (const Instruction& item : items) {
      for (const auto& messages : {awaits(item), sends(item)}) {
        for (const Message& message : messages) {
          if (message.device != device && programs.contains(message.device)) continue;
          return {device, ticked(item) + ": " + in_quotes(message.device) + " is not another device of the ring"};
        }
      }
      if (std::holds_alternative<Emit>(item) && device != source) {
        return {device, ticked(item) + ": only the source emits"};
      }
    }
  }
  return {};
}

int count(const Counts& counts, const Travel& travel) {
  const auto found = counts.find(travel);
  return found == counts.end() ? 0 : found->second;
}

/// Every message is awaited as it is sent, and brings a device no value twice.
Fault message_fault(const Programs& programs) {
  Counts sent, awaited;
  for (const auto& [device, items] : programs) {
    for (const Instruction& item : items) {
      for (const Message& message : sends(item)) ++sent[{device, message.device, message.values}];
      for (const Message& message : awaits(item)) ++awaited[{message.device, device, message.values}];
    }
  }
  for (const auto& [travel, times] : awaited) {
    if (times == 1 && count(sent, travel) == 1) continue;
    return {travel.receiver, "waits for " + joined(travel.values, ", ") + " from " + travel.sender +
                                 ", which does not send just that, once"};
  }
  for (const auto& [travel, times] : sent) {
    if (times <= count(awaited, travel)) continue;
    return {travel.sender, "sends " + joined(travel.values, ", ") + " to " + travel.receiver +
                               ", which does not wait for just that, once"};
  }
  std::map<std::pair<std::string, std::string>, int> arrivals;
  for (const auto& [travel, times] : awaited) {
    for (const std::string& value : travel.values) arrivals[{travel.receiver, value}] += 1;
  }
  for (const auto& [arrival, times] : arrivals) {
    if (times > 1)
      return {arrival.first, "is sent " + in_quotes(arrival.second) + " " + std::to_string(times) + " times"};
  }
  return {};
}

/// No device waits for a message that is sent only after something that it has yet to do.
Fault progress_fault(const Programs& programs) {
  std::map<std::string, std::size_t> at;
  std::set<Travel> sent;
  bool has_moved = true;
  while (has_moved) {
    has_moved = false;
    for (const auto& [device, items] : programs) {
      for (std::size_t& next = at[device]; next < items.size(); ++next) {
        bool is_there = true;
        for (const Message& message : awaits(items[next])) {
          is_there = is_there && sent.contains({message.device, device, message.values});
        }
        if (!is_there) break;
        for (const Message& message : sends(items[next])) sent.insert({device, message.device, message.values});
        has_moved = true;
      }
    }
  }
  for (const auto& [device, items] : programs) {
    if (at[device] < items.size()) return {device, "waits for ever: " + ticked(items[at[device]])};
  }
  return {};
}

/// Element type and largest sizes of a value.
using Fixed = std::pair<std::string, Shape>;

Fixed fixed(const Types& types, const std::string& name, const Dims& dims) {
  const build::TensorType& type = types.of.at(name);
  return {type.dtype, evaluate_shape(type.shape, dims)};
}
Fixed fixed(const Types& types, const std::string& name) { return fixed(types, name, types.dims); }

bool can_be_added(const Add& add, const Types& types) {
  const Fixed total = fixed(types, add.total);
  return total.first == "float32" &&
         std::ranges::all_of(add.terms, [&](const std::string& name) { return fixed(types, name) == total; });
}

/// Whether parts make up a whole, and are as equal as they are cut.
bool are_parts(const std::string& whole, const Names& parts, std::uint64_t axis, const Types& types) {
  Fixed part = fixed(types, whole);
  if (axis >= part.second.size()) return false;
  const Shape sizes = cut_sizes(part.second[axis], parts.size());
  for (std::size_t at = 0; at < parts.size(); ++at) {
    part.second[axis] = sizes[at];
    if (fixed(types, parts[at]) != part) return false;
  }
  return true;
}

std::string type_fault(const Instruction& item, const Types& types) {
  const Add* add = std::get_if<Add>(&item);
  if (add != nullptr && !can_be_added(*add, types)) return "only values of float32 and of one shape are added";
  const Cut* cut = std::get_if<Cut>(&item);
  const Join* join = std::get_if<Join>(&item);
  if ((cut != nullptr && !are_parts(cut->whole, cut->parts, cut->axis, types)) ||
      (join != nullptr && !are_parts(join->whole, join->parts, join->axis, types)))
    return "the parts are not those of the whole";
  return "";
}

/// Whether the values of a call have the types of the sub-module's own, for some sizes of its symbols.
bool fits(const Call& call, const Run& run, const Types& types) {
  std::vector<const build::TensorType*> own;
  std::vector<Shape> shapes;
  for (std::size_t at = 0; at < call.inputs.size(); ++at) {
    own.push_back(&types.of.at(call.inputs[at]));
    shapes.push_back(fixed(types, run.inputs[at]).second);
    if (own.back()->shape.size() != shapes.back().size()) return false;
  }
  const Dims dims = dims_of_call(own, shapes, types.dims);
  for (std::size_t at = 0; at < call.inputs.size(); ++at)
    if (fixed(types, call.inputs[at], dims) != fixed(types, run.inputs[at])) return false;
  for (std::size_t at = 0; at < call.outputs.size(); ++at)
    if (fixed(types, call.outputs[at], dims) != fixed(types, run.outputs[at])) return false;
  return true;
}

std::string call_fault(const Run& run, const Map<std::string, Call>& calls, const Types& types) {
  const Call* call = calls.find(run.submodule);
  if (call == nullptr) return in_quotes(run.submodule) + " is not a sub-module of this device";
  if (run.inputs == call->inputs && run.outputs == call->outputs) return "";
  if (call->has_states || run.inputs.size() != call->inputs.size() || run.outputs.size() != call->outputs.size())
    return "the sub-module has other inputs or outputs";
  for (const Names* names : {&call->inputs, &call->outputs})
    for (const std::string& name : *names)
      if (!types.of.contains(name)) return "";
  return fits(*call, run, types) ? "" : "the sub-module takes or makes values of other types";
}

std::string instruction_fault(const Instruction& item, const std::set<std::string>& known,
                              const Map<std::string, Call>& calls, const Types& types) {
  for (const std::string& name : reads(item)) {
    if (!known.contains(name)) return in_quotes(name) + " is neither given, made nor received before";
  }
  for (const Names& names : {reads(item), writes(item)}) {
    for (const std::string& name : names) {
      if (!types.of.contains(name)) return "the type of " + in_quotes(name) + " is not among values";
    }
  }
  const Run* run = std::get_if<Run>(&item);
  return run == nullptr ? type_fault(item, types) : call_fault(*run, calls, types);
}

}  // namespace

Fault ring_fault(const Programs& programs, const std::string& source) {
  if (Fault fault = address_fault(programs, source); !fault.device.empty()) return fault;
  if (Fault fault = message_fault(programs); !fault.device.empty()) return fault;
  return progress_fault(programs);
}

std::string device_fault(const Program& program, std::set<std::string> given, const Map<std::string, Call>& calls,
                         const Types& types) {
  const auto fault_of = [&](const Instruction& item) -> std::string {
    try {
      return instruction_fault(item, given, calls, types);
    } catch (const Error&) {
      return "a size of its values is no size";
    }
  };
  for (const Instruction& item : program) {
    const std::string problem = fault_of(item);
    if (!problem.empty()) return ticked(item) + ": " + problem;
    for (const std::string& name : writes(item)) given.insert(name);
  }
  return "";
}

Dims dims_of_call(const std::vector<const build::TensorType*>& own, const std::vector<Shape>& shapes,
                  const Dims& dims) {
  Dims found = dims;
  for (std::size_t at = 0; at < own.size(); ++at) {
    for (std::size_t axis = 0; axis < own[at]->shape.size(); ++axis) {
      const std::string* symbol = std::get_if<std::string>(&own[at]->shape[axis]);
      if (symbol != nullptr && dims.contains(*symbol)) found.set(*symbol, shapes[at][axis]);
    }
  }
  return found;
}

}  // namespace partc::program
