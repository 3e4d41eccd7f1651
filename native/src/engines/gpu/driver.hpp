/** The contract of drivers, and the table of those there are (`partc/runtime/engines/gpu/contract.py`).

A driver opens the system's library by its name, so that nothing of a GPU's maker is needed where the runner is compiled.
It hands out buffers, copies, and runs lists of launches whose arguments never change.
*/
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/kernel_plan.gen.hpp"

namespace partc::engines::gpu {

/** A call of the driver failed; the text names call and reason. */
struct DriverError {
  std::string text;
};

/** Memory of the device, or a part of it; it is given back when nobody has the object any more. */
class Memory {
 public:
  Memory() = default;
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
};
using Buffer = std::shared_ptr<const Memory>;

/** Functions of the device. */
class DeviceCode {
 public:
  DeviceCode() = default;
  virtual ~DeviceCode() = default;
  DeviceCode(const DeviceCode&) = delete;
  DeviceCode& operator=(const DeviceCode&) = delete;
};
using CodePtr = std::shared_ptr<const DeviceCode>;

/** A launch, and the buffers that its function takes, in the order of the function. */
struct Start {
  const kernel_plan::KernelLaunch* launch;
  std::vector<Buffer> buffers;
};

/** A list of launches with all that they take, ready to be started. */
class Launches {
 public:
  Launches() = default;
  virtual ~Launches() = default;
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;
  /** Do all of them, one after the other, without waiting for them. */
  virtual void start() const = 0;
};

/** The first GPU of the machine. Every method may throw a `DriverError`. */
class Driver {
 public:
  Driver() = default;
  virtual ~Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /** What the device calls itself. */
  virtual const std::string& name() const = 0;
  /** The functions in a file.

  `digest` is the SHA-256 of the kernels and launches that they have to fit. Throws where they are for another device, or
  of another plan.
  */
  virtual CodePtr load(const std::string& content, std::string_view digest) const = 0;
  /** Memory of so many bytes, 1 or more, all zero; throws where there is not enough. */
  virtual Buffer allocate(std::uint64_t bytes) const = 0;
  /** A part of a buffer, which begins at a multiple of 512 bytes. */
  virtual Buffer part(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const = 0;
  /** Copy to a buffer, from byte `offset` on; `data` may be changed afterwards. */
  virtual void write(const Memory& buffer, std::uint64_t offset, const std::byte* data, std::uint64_t bytes) const = 0;
  /** Copy a buffer from byte `offset` on, after all work before it. */
  virtual void read(const Memory& buffer, std::uint64_t offset, std::byte* data, std::uint64_t bytes) const = 0;
  /** Make a buffer zeros. */
  virtual void clear(const Memory& buffer) const = 0;
  virtual std::unique_ptr<const Launches> prepare(CodePtr code, std::vector<Start> starts) const = 0;
};

/** The driver of a provider, on the first GPU; throws a `DriverError` where the machine has none. */
std::unique_ptr<const Driver> open_driver(const std::string& provider);

}  // namespace partc::engines::gpu
