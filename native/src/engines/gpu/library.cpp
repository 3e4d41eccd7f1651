#include "engines/gpu/library.hpp"

#include <algorithm>
#include <utility>

#include "engines/plan_library.hpp"
#include "errors.hpp"
#include "format/dims.hpp"
#include "format/dtypes.hpp"
#include "format/files.hpp"

namespace partc::engines::gpu {

GpuLibrary::GpuLibrary(const Driver& driver, const build::Build& build, const std::string& folder,
                       const std::string& name)
    : driver_(driver) {
  const std::string content = read_verified(build, folder, name), plan_name = plan_file(name);
  plan_ = load_plan(build, folder, plan_name);
  if (!plan_.launches)
    throw bundle_error("it has no launches, which a GPU needs", folder + "/" + plan_name, kRecompile);
  try {
    code_ = driver.load(content, kernel_plan::kernels_digest(plan_.kernels, plan_.launches));
    arena_ = driver.allocate(std::max<std::uint64_t>(1, kernel_plan::arena_bytes(plan_)));
    for (const kernel_plan::KernelConstant& constant : plan_.constants) {
      const std::string& data = constant.data.data;
      constants_.push_back(driver.allocate(data.size()));
      driver.write(*constants_.back(), 0, reinterpret_cast<const std::byte*>(data.data()), data.size());
    }
  } catch (const DriverError& error) {
    throw bundle_error(driver.name() + " does not take it: " + error.text, folder + "/" + name, kRecompile);
  }
}

std::unique_ptr<const Launches> GpuLibrary::prepare(const kernel_plan::KernelFunction& function,
                                                    const std::vector<Buffer>& parameters) const {
  std::vector<Start> starts;
  for (const kernel_plan::KernelCall& call : function.calls) {
    const auto& kinds = plan_.kernels.at(call.kernel).parameters;
    std::vector<Buffer> given;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::uint64_t bytes = bytes_of(kinds[i].shape, element_type(kinds[i].dtype)->bytes);
      given.push_back(place(call.arguments[i], bytes, parameters));
    }
    for (const kernel_plan::KernelLaunch& launch : plan_.launches->at(call.kernel)) {
      Start& start = starts.emplace_back(Start{&launch, {}});
      for (const std::uint64_t number : launch.arguments) start.buffers.push_back(given[number]);
    }
  }
  return driver_.prepare(code_, std::move(starts));
}

Buffer GpuLibrary::place(const kernel_plan::Place& place, std::uint64_t bytes,
                         const std::vector<Buffer>& parameters) const {
  if (place.room == "arena") return driver_.part(arena_, place.at, bytes);
  return place.room == "parameter" ? parameters[place.at] : constants_[place.at];
}

}  // namespace partc::engines::gpu
