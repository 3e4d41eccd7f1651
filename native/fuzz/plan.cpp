// kernels.json: no call of a plan that is accepted leaves its memory, or reads what nothing has written.
//
// The calls are played byte by byte, in memory of the sizes that the plan tells; the rules of the reader are others.
#include <algorithm>
#include <vector>

#include "format/dims.hpp"
#include "format/dtypes.hpp"
#include "format/kernel_plan_rules.hpp"
#include "fuzz.hpp"

using namespace partc;
using namespace partc::kernel_plan;

namespace {

constexpr std::uint64_t kMostPlayed = 1 << 16;  // bytes of an arena; larger ones would be played slowly

template <class Tensor>
std::uint64_t bytes(const Tensor& tensor) {
  return bytes_of(tensor.shape, element_type(tensor.dtype)->bytes);
}

/** Bytes of the memory that a place is in, from there on. */
std::uint64_t room(const KernelPlan& plan, const KernelFunction& function, const Place& place) {
  if (place.room == "arena") return function.arena_bytes - std::min(place.at, function.arena_bytes);
  return place.room == "parameter" ? bytes(function.parameters.at(place.at))
                                   : plan.constants.at(place.at).data.data.size();
}

class Played {
 public:
  Played(const KernelPlan& plan, const KernelFunction& function)
      : plan_(plan), function_(function), is_written_(function.arena_bytes) {}

  void call(const KernelCall& call) {
    const std::vector<KernelParameter>& parameters = plan_.kernels.at(call.kernel).parameters;
    fuzz::require(call.arguments.size() == parameters.size());
    for (std::size_t at = 0; at < parameters.size(); ++at)
      if (parameters[at].access != "write") read(call.arguments[at], bytes(parameters[at]));
    for (std::size_t at = 0; at < parameters.size(); ++at)
      if (parameters[at].access != "read") write(call.arguments[at], parameters[at]);
  }
  void read(const Place& place, std::uint64_t size) const {
    fuzz::require(size <= room(plan_, function_, place));
    if (place.room != "arena") return;
    for (std::uint64_t at = 0; at < size; ++at) fuzz::require(is_written_[place.at + at]);
  }

 private:
  void write(const Place& place, const KernelParameter& parameter) {
    fuzz::require(place.room == "arena" || (place.room == "parameter" && parameter.access == "update"));
    const std::uint64_t size = bytes(parameter);
    fuzz::require(size <= room(plan_, function_, place));
    if (place.room != "arena") return;
    std::fill_n(is_written_.begin() + static_cast<std::ptrdiff_t>(place.at), size, true);
  }

  const KernelPlan& plan_;
  const KernelFunction& function_;
  std::vector<bool> is_written_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  KernelPlan plan;
  if (!fuzz::accepted([&] { plan = parse_kernel_plan(fuzz::text_of(data, size), "it"); })) return 0;
  fuzz::require(kernels_digest(plan.kernels, plan.launches).size() == 32);
  for (const auto& [name, own] : plan.launches.value_or(Launches{}))
    for (const KernelLaunch& launch : own)
      for (const std::uint64_t number : launch.arguments)
        fuzz::require(number < plan.kernels.at(name).parameters.size());
  for (const KernelConstant& constant : plan.constants) fuzz::require(constant.data.data.size() == bytes(constant));
  for (const auto& [name, function] : plan.functions) {
    fuzz::require(function.arena_bytes <= arena_bytes(plan));
    for (const std::uint64_t number : changed(plan, function)) fuzz::require(number < function.parameters.size());
    if (function.arena_bytes > kMostPlayed) continue;
    Played played(plan, function);
    for (const KernelCall& call : function.calls) played.call(call);
    for (const KernelOutput& output : function.outputs) played.read(output.place, bytes(output));
  }
  return 0;
}
