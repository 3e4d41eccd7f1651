/** A compiled library and its kernel plan in this process: loaded, its kernels found, its loop and threads started. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engines/elf_loader.hpp"
#include "engines/memory.hpp"
#include "format/build.hpp"
#include "format/kernel_plan_rules.hpp"

namespace partc::engines {

/** TVM's calling convention, as `targets/tvm/loop/loop.c` has it. */
struct Argument {
  std::int32_t type;
  std::uint32_t padding;
  void* pointer;
};
using Kernel = std::int32_t (*)(void* self, const Argument* arguments, std::int32_t count, Argument* result);
struct Call {
  Kernel kernel;
  const Argument* arguments;
  std::int64_t count;
};

/** Threads that wait in the library for a part of a kernel; some 20 us after the last one they sleep. */
class Helpers {
 public:
  using Work = void (*)(const std::int32_t* stop);
  using Wake = void (*)();

  /** Throws a bundle error: this machine does not allow as many. */
  Helpers(Work work, Wake wake, std::size_t count, const std::string& path);
  ~Helpers() { end(); }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

 private:
  void end();

  Wake wake_;
  std::int32_t stop_ = 0;  // the library reads it while we write it: atomically on both sides
  std::vector<std::thread> threads_;
};

/** The functions of one library, and the memory that they share: one step runs at a time. */
class Library {
 public:
  /** Load the file `name` of a device's folder, and start the threads that the build asks for.

  Throws a bundle error: library or plan is not what the build describes, or for another kind of machine; or this one
  does not allow as many threads.
  */
  Library(const build::Build& build, const std::string& folder, const std::string& name);

  const kernel_plan::KernelPlan& plan() const { return plan_; }
  Kernel kernel(const std::string& name) const { return kernels_.at(name); }
  std::byte* constant(std::uint64_t number) const { return constants_[number].data(); }
  /** Memory for everything that functions make; the next call of any overwrites it. */
  std::byte* arena() const { return arena_.data(); }
  /** Run calls of kernels; 0, or the number from 1 of the one without memory. */
  std::int64_t run(const Call* calls, std::int64_t count) const { return run_(calls, count); }

 private:
  void load_code(const build::Build& build, const std::string& folder, const std::string& name);
  void find_kernels();
  void start_helpers(std::size_t threads);

  std::string path_;
  std::unique_ptr<Code> code_;
  kernel_plan::KernelPlan plan_;
  std::map<std::string, Kernel> kernels_;
  std::vector<Pages> constants_;
  Pages arena_;
  std::int64_t (*run_)(const Call*, std::int64_t) = nullptr;
  std::unique_ptr<Helpers> helpers_;  // they end before their code goes
};

/** Read the kernel plan `name` of a device's folder. Throws a bundle error: it is not what the build describes. */
kernel_plan::KernelPlan load_plan(const build::Build& build, const std::string& folder, const std::string& name);

/** The name of the kernel plan beside a library. */
std::string plan_file(const std::string& library);

}  // namespace partc::engines
