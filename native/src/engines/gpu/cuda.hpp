/** CUDA's driver interface, through `libcuda.so.1` of NVIDIA's driver. */
#pragma once

#include <memory>

#include "engines/gpu/driver.hpp"

namespace partc::engines::gpu {

/** The first GPU; throws a `DriverError` where there is none. */
std::unique_ptr<const Driver> open_cuda();

}  // namespace partc::engines::gpu
