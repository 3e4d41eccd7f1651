#include "engines/plan_frame.hpp"

#include <utility>

#include "errors.hpp"
#include "format/dtypes.hpp"

namespace partc::engines {
namespace {

constexpr std::int32_t kTensorArgument = 7, kProcessor = 1;

/** DLPack's code of an element type. */
std::uint8_t code_of(std::string_view dtype) {
  if (dtype == "bfloat16") return 4;
  if (dtype == "bool") return 6;
  if (dtype.starts_with("uint")) return 1;
  return dtype.starts_with("int") ? 0 : 2;
}

std::vector<KernelUse> uses_of(const kernel_plan::KernelPlan& plan, const kernel_plan::KernelFunction& function) {
  std::vector<KernelUse> found;
  for (const kernel_plan::KernelCall& call : function.calls) found.push_back({call.kernel, operands_of(plan, call)});
  return found;
}

}  // namespace

std::vector<Operand> operands_of(const kernel_plan::KernelPlan& plan, const kernel_plan::KernelCall& call) {
  std::vector<Operand> found;
  const auto& parameters = plan.kernels.at(call.kernel).parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    found.push_back({call.arguments[i], {parameters[i].dtype, parameters[i].shape}});
  return found;
}

Frame::Frame(const Library& library, const kernel_plan::KernelFunction& function, std::vector<std::byte*> parameters)
    : Frame(library, function, std::move(parameters), uses_of(library.plan(), function)) {}

Frame::Frame(const Library& library, const kernel_plan::KernelFunction& function, std::vector<std::byte*> parameters,
             const std::vector<KernelUse>& uses)
    : library_(library), parameters_(std::move(parameters)) {
  std::vector<std::size_t> given;  // the tensor of every argument
  for (const KernelUse& use : uses) {
    for (const Operand& operand : use.operands) given.push_back(number(operand));
    calls_.push_back({library.kernel(use.kernel), nullptr, static_cast<std::int64_t>(use.operands.size())});
    names_.push_back(use.kernel);
  }
  numbers_.clear();
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].shape = shapes_[i].data();
  for (const std::size_t tensor : given) arguments_.push_back({kTensorArgument, 0, &tensors_[tensor]});
  const Argument* next = arguments_.data();
  for (Call& call : calls_) {
    call.arguments = next;
    next += call.count;
  }
  for (const kernel_plan::KernelOutput& output : function.outputs) outputs_.push_back(address(output.place));
}

void Frame::point(const std::vector<std::vector<std::byte*>>& states, std::uint64_t first) {
  for (const StateOfRow& state : states_) tensors_[state.tensor].data = states[state.row][state.parameter - first];
}

/** The number of a tensor; views of one place are different tensors. */
std::size_t Frame::number(const Operand& operand) {
  const auto& [place, kind, offset, row] = operand;
  const auto [found, is_new] =
      numbers_.emplace(Kind{place.room, place.at, offset, row, kind.dtype, kind.shape}, tensors_.size());
  if (!is_new) return found->second;
  shapes_.emplace_back(kind.shape.begin(), kind.shape.end());
  const auto bits = static_cast<std::uint8_t>(8 * element_type(kind.dtype)->bytes);
  const auto axes = static_cast<std::int32_t>(kind.shape.size());
  if (row) states_.push_back({tensors_.size(), place.at, *row});
  std::byte* const data = row ? nullptr : address(place) + offset;
  // Without strides: there are no gaps.
  tensors_.push_back({data, kProcessor, 0, axes, code_of(kind.dtype), bits, 1, nullptr, nullptr, 0});
  return found->second;
}

std::byte* Frame::address(const kernel_plan::Place& place) const {
  if (place.room == "arena") return library_.arena() + place.at;
  return place.room == "parameter" ? parameters_[place.at] : library_.constant(place.at);
}

void Frame::run() const {
  const std::int64_t failed = library_.run(calls_.data(), static_cast<std::int64_t>(calls_.size()));
  if (failed == 0) return;
  throw run_error("there is not enough memory for the kernel " + names_[static_cast<std::size_t>(failed - 1)], "",
                  "end other programs, or compile with a smaller max_sequence");
}

}  // namespace partc::engines
