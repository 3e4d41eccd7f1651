/** The system's OpenCL, which computes for the stand-in of CUDA. */
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace opencl {

/** Ends the process: a rule of CUDA was broken, or there is nothing to compute with. */
[[noreturn]] inline void broken(const char* function, const std::string& rule) {
  std::fprintf(stderr, "libcuda stand-in: %s: %s\n", function, rule.c_str());
  std::fflush(stderr);
  std::_Exit(86);
}

template <class Type>
Type function(const char* name) {
  static void* const library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  void* const found = library ? dlsym(library, name) : nullptr;
  if (!found) broken(name, "there is no OpenCL to compute with");
  return reinterpret_cast<Type>(found);
}

struct Machine {
  void* device = nullptr;
  void* context = nullptr;
  void* queue = nullptr;

  Machine() {
    void* platform = nullptr;
    int code = 0;
    function<int (*)(unsigned, void**, unsigned*)>("clGetPlatformIDs")(1, &platform, nullptr);
    function<int (*)(void*, std::uint64_t, unsigned, void**, unsigned*)>("clGetDeviceIDs")(platform, 0xFFFFFFFF, 1,
                                                                                         &device, nullptr);
    context = function<void* (*)(const void*, unsigned, void* const*, void*, void*, int*)>("clCreateContext")(
        nullptr, 1, &device, nullptr, nullptr, &code);
    queue = function<void* (*)(void*, void*, std::uint64_t, int*)>("clCreateCommandQueue")(context, device, 0, &code);
    if (!queue) broken("cuInit", "OpenCL has no device");
  }
};

inline Machine& machine() {
  static Machine found;
  return found;
}

/** Memory that host and device share; null where there is not enough. */
inline void* shared(std::size_t bytes) {
  return function<void* (*)(void*, std::uint64_t, std::size_t, unsigned)>("clSVMAlloc")(machine().context, 1, bytes, 0);
}

inline void unshare(void* address) { function<void (*)(void*, void*)>("clSVMFree")(machine().context, address); }

inline void finish() { function<int (*)(void*)>("clFinish")(machine().queue); }

/** The program of a source; null where it does not compile. */
inline void* built(const std::string& source) {
  const char* text = source.data();
  const std::size_t bytes = source.size();
  int code = 0;
  void* const program = function<void* (*)(void*, unsigned, const char**, const std::size_t*, int*)>(
      "clCreateProgramWithSource")(machine().context, 1, &text, &bytes, &code);
  const auto build = function<int (*)(void*, unsigned, void* const*, const char*, void*, void*)>("clBuildProgram");
  return build(program, 1, &machine().device, "-cl-std=CL1.2", nullptr, nullptr) ? nullptr : program;
}

inline void release_program(void* program) { function<int (*)(void*)>("clReleaseProgram")(program); }

inline void* kernel_of(void* program, const std::string& name) {
  int code = 0;
  return function<void* (*)(void*, const char*, int*)>("clCreateKernel")(program, name.c_str(), &code);
}

inline void release_kernel(void* kernel) { function<int (*)(void*)>("clReleaseKernel")(kernel); }

/** Arguments that a kernel takes; -1 where there is none of that name. */
inline int arguments_of(void* program, const std::string& name) {
  constexpr unsigned kArguments = 0x1191;  // CL_KERNEL_NUM_ARGS
  void* const kernel = kernel_of(program, name);
  if (!kernel) return -1;
  unsigned count = 0;
  function<int (*)(void*, unsigned, std::size_t, void*, std::size_t*)>("clGetKernelInfo")(kernel, kArguments,
                                                                                        sizeof count, &count, nullptr);
  release_kernel(kernel);
  return static_cast<int>(count);
}

/** Start a kernel over shared memory; 0, or the error. */
inline int start(void* program, const std::string& name, const std::vector<std::uint64_t>& arguments,
                 const std::array<std::size_t, 3>& grid, const std::array<std::size_t, 3>& block) {
  void* const kernel = kernel_of(program, name);
  const auto set = function<int (*)(void*, unsigned, const void*)>("clSetKernelArgSVMPointer");
  for (std::size_t at = 0; at < arguments.size(); ++at)
    if (const int code = set(kernel, static_cast<unsigned>(at), reinterpret_cast<const void*>(arguments[at]))) return code;
  std::array<std::size_t, 3> all{};
  for (std::size_t axis = 0; axis < all.size(); ++axis) all[axis] = grid[axis] * block[axis];
  using Start = int (*)(void*, void*, unsigned, const std::size_t*, const std::size_t*, const std::size_t*, unsigned,
                        const void*, void*);
  const int code = function<Start>("clEnqueueNDRangeKernel")(machine().queue, kernel, 3, nullptr, all.data(),
                                                             block.data(), 0, nullptr, nullptr);
  release_kernel(kernel);
  return code;
}

}  // namespace opencl
