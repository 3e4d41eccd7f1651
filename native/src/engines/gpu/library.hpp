/** Code for a GPU and its plan, loaded into a driver, and the memory that its functions share. */
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engines/gpu/driver.hpp"
#include "format/build.hpp"
#include "format/kernel_plan_rules.hpp"

namespace partc::engines::gpu {

/** The functions of one file; one step runs at a time. */
class GpuLibrary {
 public:
  /** Load the file `name` of a device's folder and its plan into a driver, which must stay.

  Throws a bundle error: code or plan is not what the build describes, or for another device; or there is no memory left.
  */
  GpuLibrary(const Driver& driver, const build::Build& build, const std::string& folder, const std::string& name);

  const kernel_plan::KernelPlan& plan() const { return plan_; }
  /** What computes a function: `parameters` are its inputs, states and weights, which stay where they are. */
  std::unique_ptr<const Launches> prepare(const kernel_plan::KernelFunction& function,
                                          const std::vector<Buffer>& parameters) const;
  /** Where a tensor of so many bytes lies. */
  Buffer place(const kernel_plan::Place& place, std::uint64_t bytes, const std::vector<Buffer>& parameters) const;

 private:
  const Driver& driver_;
  kernel_plan::KernelPlan plan_;
  CodePtr code_;
  Buffer arena_;
  std::vector<Buffer> constants_;
};

}  // namespace partc::engines::gpu
