/** Frames: a function of a kernel plan with all of its arguments, as `partc_run` of the library takes them.

Addresses are put together once; a step writes its inputs where they point to, and calls.
*/
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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

/** One function, ready to be called. */
class Frame {
 public:
  /** `parameters`: inputs, states and weights, as the function takes them; their memory must stay theirs. */
  Frame(const Library& library, const kernel_plan::KernelFunction& function, std::vector<std::byte*> parameters);

  /** Compute the outputs; states among the parameters are changed. Throws a run error: a kernel had no memory. */
  void run() const;
  /** The outputs where they come to lie: the next call of any function overwrites them. */
  const std::vector<const std::byte*>& outputs() const { return outputs_; }

 private:
  using Kind = std::tuple<std::string, std::uint64_t, std::string, std::vector<std::uint64_t>>;

  std::size_t number(const kernel_plan::Place& place, const kernel_plan::KernelParameter& kind);
  std::byte* address(const kernel_plan::Place& place) const;

  const Library& library_;
  std::vector<std::byte*> parameters_;
  std::map<Kind, std::size_t> numbers_;
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<TensorHead> tensors_;
  std::vector<Argument> arguments_;
  std::vector<Call> calls_;
  std::vector<std::string> names_;
  std::vector<const std::byte*> outputs_;
};

}  // namespace partc::engines
