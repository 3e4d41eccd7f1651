/** Frames: a function of a kernel plan with all of its arguments, as `partc_run` of the library takes them.

Addresses are put together once; a step writes its inputs where they point to, and calls.
*/
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engines/plan_library.hpp"

namespace partc::engines {

/** DLPack's DLTensor, with which kernels find a tensor. */
struct TensorHead {
  void* data;
  std::int32_t device, number, axes;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  const std::int64_t* shape;
  const std::int64_t* strides;
  std::uint64_t offset;
};
static_assert(sizeof(Argument) == 16 && sizeof(Call) == 24 && sizeof(TensorHead) == 48, "as C has them");

/** A tensor that a kernel is called with. */
struct Operand {
  kernel_plan::Place place;
  kernel_plan::KernelTensor kind;
  std::uint64_t offset = 0;            // bytes from where the place begins
  std::optional<std::uint64_t> row{};  // in a shared step, the number of the request whose state it is
};
/** A kernel, and what it is called with. */
struct KernelUse {
  std::string kernel;
  std::vector<Operand> operands;
};

/** The operands of a call of a plan. */
std::vector<Operand> operands_of(const kernel_plan::KernelPlan& plan, const kernel_plan::KernelCall& call);

/** One function, ready to be called. */
class Frame {
 public:
  /** `parameters`: inputs, states and weights, as the function takes them; their memory must stay theirs. */
  Frame(const Library& library, const kernel_plan::KernelFunction& function, std::vector<std::byte*> parameters);
  /** For a shared step: `uses` take the place of the function's calls, and states are null: `point` says where they lie. */
  Frame(const Library& library, const kernel_plan::KernelFunction& function, std::vector<std::byte*> parameters,
        const std::vector<KernelUse>& uses);

  /** Let the states of a shared step be those at these addresses: of each request, in the order of parameters.

  `first` is the number of the first parameter that is a state. O(states).
  */
  void point(const std::vector<std::vector<std::byte*>>& states, std::uint64_t first);
  /** Compute the outputs; states among the parameters are changed. Throws a run error: a kernel had no memory. */
  void run() const;
  /** The outputs where they come to lie: the next call of any function overwrites them. */
  const std::vector<const std::byte*>& outputs() const { return outputs_; }

 private:
  using Kind = std::tuple<std::string, std::uint64_t, std::uint64_t, std::optional<std::uint64_t>, std::string,
                          std::vector<std::uint64_t>>;
  /** A tensor of a shared step that is a state: its parameter, and the request whose it is. */
  struct StateOfRow {
    std::size_t tensor;
    std::uint64_t parameter, row;
  };

  std::size_t number(const Operand& operand);
  std::byte* address(const kernel_plan::Place& place) const;

  const Library& library_;
  std::vector<std::byte*> parameters_;
  std::map<Kind, std::size_t> numbers_;
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<TensorHead> tensors_;
  std::vector<StateOfRow> states_;
  std::vector<Argument> arguments_;
  std::vector<Call> calls_;
  std::vector<std::string> names_;
  std::vector<const std::byte*> outputs_;
};

}  // namespace partc::engines
