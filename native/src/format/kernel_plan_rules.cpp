#include "format/kernel_plan_rules.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "format/build.hpp"
#include "format/complaints.hpp"
#include "format/digests.hpp"
#include "format/dims.hpp"
#include "format/dtypes.hpp"
#include "format/json.hpp"
#include "format/text.hpp"

namespace partc::kernel_plan {
namespace {

/// Bytes of anything with an element type, which is known, and a shape.
template <class Tensor>
std::uint64_t bytes(const Tensor& tensor) {
  return bytes_of(tensor.shape, element_type(tensor.dtype)->bytes);
}

template <class Tensor>
std::string type_text(const Tensor& tensor) {
  std::vector<std::string> sizes;
  for (const std::uint64_t size : tensor.shape) sizes.push_back(std::to_string(size));
  return tensor.dtype + "[" + joined(sizes, ", ") + "]";
}

std::string place_text(const Place& place) { return place.room + " " + std::to_string(place.at); }

/// The memory of one function while its calls are followed in order.
class Memory {
 public:
  Memory(const KernelPlan& plan, const KernelFunction& function) : plan_(plan), function_(function) {}

  std::string problem() {
    for (std::size_t number = 0; number < function_.calls.size(); ++number) {
      const KernelCall& call = function_.calls[number];
      const std::string found = of_call(call);
      if (!found.empty()) return "calls[" + std::to_string(number) + "] (" + call.kernel + "): " + found;
    }
    for (std::size_t number = 0; number < function_.outputs.size(); ++number) {
      const KernelOutput& output = function_.outputs[number];
      const std::string found = cannot_read(output.place, output);
      if (!found.empty()) return "outputs[" + std::to_string(number) + "]: " + found;
    }
    const std::uint64_t size = (end_ + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (function_.arena_bytes == size) return "";
    return "arena_bytes: " + std::to_string(function_.arena_bytes) + ", its calls take " + std::to_string(size);
  }

 private:
  /// The end of what lies in the arena, and its element type.
  struct Held {
    std::uint64_t end;
    std::string dtype;
  };

  std::string of_call(const KernelCall& call) {
    const Kernel* kernel = plan_.kernels.find(call.kernel);
    if (kernel == nullptr) return "there is no such kernel";
    const auto& parameters = kernel->parameters;
    if (parameters.size() != call.arguments.size()) {
      return std::to_string(call.arguments.size()) + " arguments, it takes " + std::to_string(parameters.size());
    }
    for (std::size_t at = 0; at < parameters.size(); ++at) {
      const std::string problem = of_argument(call.arguments[at], parameters[at]);
      if (!problem.empty()) return problem;
    }
    for (std::size_t at = 0; at < parameters.size(); ++at) {
      if (parameters[at].access == "read") continue;
      const std::string problem = overlap(call, parameters, at);
      if (!problem.empty()) return problem;
    }
    for (std::size_t at = 0; at < parameters.size(); ++at) {
      if (parameters[at].access == "write") write(call.arguments[at], parameters[at]);
    }
    return "";
  }

  std::string of_argument(const Place& place, const KernelParameter& parameter) const {
    if (parameter.access == "write") {
      if (place.room != "arena") return place_text(place) + " would be overwritten";
      if (place.at % ALIGNMENT == 0) return "";
      return "offset " + std::to_string(place.at) + " is no multiple of " + std::to_string(ALIGNMENT);
    }
    if (parameter.access == "update" && place.room == "constant") return place_text(place) + " would be changed";
    return cannot_read(place, parameter);
  }

  /// Why a tensor cannot be read there; empty where it can.
  template <class Tensor>
  std::string cannot_read(const Place& place, const Tensor& tensor) const {
    if (place.room == "arena") {
      const auto found = held_.find(place.at);
      const bool is_there =
          found != held_.end() && found->second.end == place.at + bytes(tensor) && found->second.dtype == tensor.dtype;
      if (is_there) return "";
      return "nothing has written " + type_text(tensor) + " to offset " + std::to_string(place.at) + " of the arena";
    }
    return place.room == "parameter" ? differs(place, function_.parameters, tensor)
                                     : differs(place, plan_.constants, tensor);
  }
  template <class Known, class Tensor>
  static std::string differs(const Place& place, const std::vector<Known>& known, const Tensor& tensor) {
    if (place.at >= known.size()) return "there is no " + place_text(place);
    const Known& found = known[place.at];
    if (found.dtype == tensor.dtype && bytes(found) == bytes(tensor)) return "";
    return place_text(place) + " is " + type_text(found) + ", not " + type_text(tensor);
  }

  static std::string overlap(const KernelCall& call, const std::vector<KernelParameter>& parameters, std::size_t one) {
    const Place& place = call.arguments[one];
    for (std::size_t other = 0; other < parameters.size(); ++other) {
      const Place& found = call.arguments[other];
      if (other != one && overlap(place, bytes(parameters[one]), found, bytes(parameters[other]))) {
        return "it changes " + place_text(place) + ", which overlaps " + place_text(found);
      }
    }
    return "";
  }
  static bool overlap(const Place& one, std::uint64_t one_bytes, const Place& other, std::uint64_t other_bytes) {
    if (one.room != "arena" || other.room != "arena") return one == other;
    return one.at < other.at + other_bytes && other.at < one.at + one_bytes;
  }

  void write(const Place& place, const KernelParameter& tensor) {
    const std::uint64_t end = place.at + bytes(tensor);
    std::erase_if(held_, [&](const auto& item) { return item.first < end && place.at < item.second.end; });
    held_[place.at] = {end, tensor.dtype};
    end_ = std::max(end_, end);
  }

  const KernelPlan& plan_;
  const KernelFunction& function_;
  /// Offset → what lies there in the arena.
  std::map<std::uint64_t, Held> held_;
  /// Bytes of the arena that calls have written to, up to the last one.
  std::uint64_t end_ = 0;
};

constexpr std::uint64_t MOST_BYTES = std::uint64_t{1} << 53;

/// Unknown element types, and tensors larger than any memory: sums of offsets and sizes then fit 64 bits.
template <class Tensor>
std::string tensor_problem(const std::string& place, const Tensor& tensor) {
  if (element_type(tensor.dtype) == nullptr) {
    return place + ": the element type " + in_quotes(tensor.dtype, 30) + " is unknown";
  }
  return bytes(tensor) < MOST_BYTES ? "" : place + ": " + type_text(tensor) + " is too large";
}

std::string tensors_problem(const KernelPlan& plan) {
  std::string found;
  auto look = [&found](const std::string& place, const auto& tensors) {
    for (const auto& tensor : tensors) {
      if (found.empty()) found = tensor_problem(place, tensor);
    }
  };
  for (const auto& [name, kernel] : plan.kernels) look("kernels." + name, kernel.parameters);
  look("constants", plan.constants);
  for (const auto& [name, function] : plan.functions) {
    look("functions." + name, function.parameters);
    look("functions." + name, function.outputs);
  }
  return found;
}

/// Threads of a block on every GPU that there is code for.
constexpr std::uint64_t MOST_THREADS = 1024;

std::string launch_problem(const Kernel& kernel, const KernelLaunch& launch) {
  const std::uint64_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  if (threads > MOST_THREADS) {
    return ".block: " + std::to_string(threads) + " threads, a block has " + std::to_string(MOST_THREADS) + " at most";
  }
  const std::size_t count = kernel.parameters.size();
  const bool are_there =
      std::ranges::all_of(launch.arguments, [&](std::uint64_t argument) { return argument < count; });
  return are_there ? "" : ".arguments: the kernel has " + std::to_string(count) + " parameters";
}

/// Why these launches are not those of the kernels; empty where they are.
std::string launches_problem(const Map<std::string, Kernel>& kernels, const Launches& launches) {
  std::set<std::string> alone;
  for (const auto& [name, kernel] : kernels)
    if (!launches.contains(name)) alone.insert(name);
  for (const auto& [name, own] : launches)
    if (!kernels.contains(name)) alone.insert(name);
  if (!alone.empty()) return "launches: " + in_quotes(*alone.begin()) + " is not there and among the kernels";
  for (const auto& [name, own] : launches) {
    if (own.empty()) return "launches." + name + ": there is none";
    for (std::size_t number = 0; number < own.size(); ++number) {
      const std::string problem = launch_problem(kernels.at(name), own[number]);
      if (!problem.empty()) return "launches." + name + "[" + std::to_string(number) + "]" + problem;
    }
  }
  return "";
}

}  // namespace

std::string plan_problem(const KernelPlan& plan) {
  if (std::string problem = tensors_problem(plan); !problem.empty()) return problem;
  for (std::size_t number = 0; number < plan.constants.size(); ++number) {
    const KernelConstant& constant = plan.constants[number];
    if (constant.data.data.size() != bytes(constant)) {
      return "constants[" + std::to_string(number) + "]: " + std::to_string(constant.data.data.size()) +
             " bytes, its shape takes " + std::to_string(bytes(constant));
    }
  }
  if (plan.launches) {
    if (std::string problem = launches_problem(plan.kernels, *plan.launches); !problem.empty()) return problem;
  }
  for (const auto& [name, function] : plan.functions) {
    if (std::string problem = Memory(plan, function).problem(); !problem.empty()) {
      return "functions." + name + ": " + problem;
    }
  }
  return "";
}

KernelPlan parse_kernel_plan(std::string_view text, const std::string& where) {
  const Object raw = read_json_object(text, where);
  check_format(raw, KERNELS_FORMAT, where);
  KernelPlan plan = converted(where, [&] { return read_kernel_plan({raw}); });
  if (const std::string problem = plan_problem(plan); !problem.empty()) throw recompile(problem, where);
  return plan;
}

std::uint64_t arena_bytes(const KernelPlan& plan) {
  std::uint64_t most = 0;
  for (const auto& [name, function] : plan.functions) most = std::max(most, function.arena_bytes);
  return most;
}

std::string kernels_digest(const Map<std::string, Kernel>& kernels, const std::optional<Launches>& launches) {
  KernelPlan alone;
  alone.kernels = kernels;
  alone.launches = launches;
  const Value data = write_kernel_plan(alone);
  Sha256 hash;
  hash.update(compact_json(data.as<Object>()->at("kernels")));
  if (launches) hash.update(compact_json(data.as<Object>()->at("launches")));
  return hash.digest();
}

std::set<std::uint64_t> changed(const KernelPlan& plan, const KernelFunction& function) {
  std::set<std::uint64_t> found;
  for (const KernelCall& call : function.calls) {
    const Kernel& kernel = plan.kernels.at(call.kernel);
    for (std::size_t at = 0; at < call.arguments.size(); ++at) {
      if (call.arguments[at].room == "parameter" && kernel.parameters[at].access != "read") {
        found.insert(call.arguments[at].at);
      }
    }
  }
  return found;
}

}  // namespace partc::kernel_plan
