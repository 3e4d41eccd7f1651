// Written by `python -m partc.format.native native/src/format`: change the Python structs, not this file.

#pragma once

#include "format/plain.hpp"

namespace partc::kernel_plan {

/// Element type and shape of a tensor without gaps.
struct KernelTensor {
  std::string dtype{};
  std::vector<std::uint64_t> shape{};
  bool operator==(const KernelTensor&) const = default;
};

/// A tensor that a kernel takes.
struct KernelParameter {
  std::string dtype{};
  std::vector<std::uint64_t> shape{};
  std::string access = "read";
  bool operator==(const KernelParameter&) const = default;
};

/// A kernel of the library: its symbol is `__tvm_ffi_` and its name.
struct Kernel {
  std::vector<KernelParameter> parameters{};
  bool operator==(const Kernel&) const = default;
};

/// A tensor that stands in the plan itself.
struct KernelConstant {
  std::string dtype{};
  std::vector<std::uint64_t> shape{};
  Bytes data{};
  bool operator==(const KernelConstant&) const = default;
};

/// One start of a function on a GPU.
struct KernelLaunch {
  std::string function{};
  std::array<std::uint64_t, 3> grid{};
  std::array<std::uint64_t, 3> block{};
  std::uint64_t shared_bytes{};
  std::vector<std::uint64_t> arguments{};
  bool operator==(const KernelLaunch&) const = default;
};

/// The place of a tensor, written as a list: `["arena", 128]`.
struct Place {
  std::string room{};
  std::uint64_t at{};
  bool operator==(const Place&) const = default;
};

/// One kernel, once.
struct KernelCall {
  std::string kernel{};
  std::vector<Place> arguments{};
  bool operator==(const KernelCall&) const = default;
};

/// A result of a function.
struct KernelOutput {
  std::string dtype{};
  std::vector<std::uint64_t> shape{};
  Place place{};
  bool operator==(const KernelOutput&) const = default;
};

/// One function of a sub-module, for one size of step.
struct KernelFunction {
  std::vector<KernelTensor> parameters{};
  std::uint64_t arena_bytes{};
  std::vector<KernelCall> calls{};
  std::vector<KernelOutput> outputs{};
  bool operator==(const KernelFunction&) const = default;
};

/// kernels.json of one library.
struct KernelPlan {
  std::string format = "partc-kernels/1";
  Map<std::string, Kernel> kernels{};
  std::vector<KernelConstant> constants{};
  Map<std::string, KernelFunction> functions{};
  std::optional<Map<std::string, std::vector<KernelLaunch>>> launches{};
  bool operator==(const KernelPlan&) const = default;
};

/// Throws Error: the data are no KernelPlan.
KernelPlan read_kernel_plan(const Value& value);
Value write_kernel_plan(const KernelPlan& item);

}  // namespace partc::kernel_plan
