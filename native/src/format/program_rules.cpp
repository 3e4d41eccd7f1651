#include "format/program_rules.hpp"

#include <map>

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
using Types = Map<std::string, build::TensorType>;

std::string quoted(const Instruction& instruction) { return "`" + print_instruction(instruction) + "`"; }

Fault address_fault(const Programs& programs, const std::string& source) {
  for (const auto& [device, items] : programs) {
    for (const Instruction& item : items) {
      for (const auto& messages : {awaits(item), sends(item)}) {
        for (const Message& message : messages) {
          if (message.device != device && programs.contains(message.device)) continue;
          return {device, quoted(item) + ": '" + message.device + "' is not another device of the ring"};
        }
      }
      if (std::holds_alternative<Emit>(item) && device != source) {
        return {device, quoted(item) + ": only the source emits"};
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
    if (times > 1) return {arrival.first, "is sent '" + arrival.second + "' " + std::to_string(times) + " times"};
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
    if (at[device] < items.size()) return {device, "waits for ever: " + quoted(items[at[device]])};
  }
  return {};
}

std::string instruction_fault(const Instruction& item, const std::set<std::string>& known,
                              const Map<std::string, Run>& calls, const Types& types) {
  for (const std::string& name : reads(item)) {
    if (!known.contains(name)) return "'" + name + "' is neither given, made nor received before";
  }
  for (const Names& names : {reads(item), writes(item)}) {
    for (const std::string& name : names) {
      if (!types.contains(name)) return "the type of '" + name + "' is not among values";
    }
  }
  if (const Add* add = std::get_if<Add>(&item)) {
    const build::TensorType& total = types.at(add->total);
    for (const std::string& name : add->terms) {
      if (total.dtype == "float32" && types.at(name) == total) continue;
      return "only values of float32 and of one shape are added";
    }
  }
  const Run* run = std::get_if<Run>(&item);
  if (run == nullptr) return "";
  const Run* call = calls.find(run->submodule);
  if (call == nullptr) return "'" + run->submodule + "' is not a sub-module of this device";
  return *run == *call ? "" : "the sub-module has other inputs or outputs";
}

}  // namespace

Fault ring_fault(const Programs& programs, const std::string& source) {
  if (Fault fault = address_fault(programs, source); !fault.device.empty()) return fault;
  if (Fault fault = message_fault(programs); !fault.device.empty()) return fault;
  return progress_fault(programs);
}

std::string device_fault(const Program& program, std::set<std::string> given, const Map<std::string, Run>& calls,
                         const Types& types) {
  for (const Instruction& item : program) {
    const std::string problem = instruction_fault(item, given, calls, types);
    if (!problem.empty()) return quoted(item) + ": " + problem;
    for (const std::string& name : writes(item)) given.insert(name);
  }
  return "";
}

}  // namespace partc::program
