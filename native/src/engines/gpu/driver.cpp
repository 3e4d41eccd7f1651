#include "engines/gpu/driver.hpp"

#include "engines/gpu/cuda.hpp"
#include "engines/gpu/opencl.hpp"

namespace partc::engines::gpu {

std::unique_ptr<const Driver> open_driver(const std::string& provider) {
  if (provider == "cuda") return open_cuda();
  return open_opencl();
}

}  // namespace partc::engines::gpu
