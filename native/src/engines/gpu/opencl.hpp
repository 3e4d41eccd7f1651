/** OpenCL 1.2, through `libOpenCL.so.1` or the library of the device's maker. */
#pragma once

#include <memory>

#include "engines/gpu/driver.hpp"

namespace partc::engines::gpu {

/** The first GPU, and a processor where OpenCL has none; throws a `DriverError` where it has no device. */
std::unique_ptr<const Driver> open_opencl();

}  // namespace partc::engines::gpu
