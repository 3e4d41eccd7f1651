/** A stand-in for `libcuda.so.1`, for tests of what calls it on machines without a GPU.

It holds every call against CUDA's rules, and ends the process with a line where one is broken: who calls has said in this
thread in which context; addresses lie in memory that is still there; what is destroyed is used no more, and once; a graph
is recorded between a beginning and an end, and its launches find their memory when it starts. "Machine code" is OpenCL's
source with `// partc_kernels DIGEST` in its first line, which the system's OpenCL compiles and runs (with PoCL, on the
processor), so that a step gives right numbers. The device's memory is memory that OpenCL shares (SVM).

What it does not have: time. Nothing runs beside the caller, so a copy that does not wait is not found.
*/
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "opencl.hpp"

namespace {

using opencl::broken;

enum Code { kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNoBinary = 209, kNotFound = 500, kImplicit = 906 };
constexpr unsigned kNonBlocking = 1;
constexpr std::size_t kMostBytes = std::size_t{1} << 32;

struct Stream {
  bool is_blocking, is_capturing = false;
};
struct Module {
  void* program;
  void* digest;
};
struct Function {
  Module* module;
  std::string name;
  int shared_bytes = 48 * 1024;
};
struct Launch {
  Module* module;
  std::string name;
  std::array<std::size_t, 3> grid, block;
  std::vector<std::uint64_t> arguments;
};
using Graph = std::vector<Launch>;

std::recursive_mutex changing;
bool is_ready = false;
int retained = 0;
int context_handle;  // its address is the context
thread_local void* current = nullptr;
std::map<std::uint64_t, std::size_t> memory;  // address → bytes
std::set<Stream*> streams;
std::set<Module*> modules;
std::set<Function*> functions;
std::set<Graph*> graphs, executables;
std::map<Stream*, Graph*> recorded;

void check_call(const char* name, bool needs_context = true) {
  if (!is_ready) broken(name, "cuInit was not called");
  if (needs_context && (current != &context_handle || !retained)) broken(name, "no context is current in this thread");
}

void check_memory(const char* name, std::uint64_t address, std::size_t bytes) {
  auto found = memory.upper_bound(address);
  const bool is_there = found != memory.begin() && (--found, address - found->first <= found->second) &&
                        bytes <= found->second - (address - found->first);
  if (!is_there || !bytes) broken(name, std::to_string(bytes) + " bytes that are not there");
}

template <class T>
void check_live(const char* name, const std::set<T*>& known, T* one) {
  if (!known.contains(one)) broken(name, "it was destroyed, or never made");
}

/** The legacy stream waits for all that block: while one of them records, nothing may be given to it. */
bool legacy_is_free() {
  for (const Stream* stream : streams)
    if (stream->is_blocking && stream->is_capturing) return false;
  return true;
}

void compute(const char* name, const Launch& launch) {
  check_live(name, modules, launch.module);
  for (const std::uint64_t argument : launch.arguments) check_memory(name, argument, 1);
  const int code = opencl::start(launch.module->program, launch.name, launch.arguments, launch.grid, launch.block);
  if (code) broken(name, "OpenCL refuses " + launch.name + " with " + std::to_string(code));
}

/** The 32 bytes that the first line tells; empty where it does not. */
std::string digest_in(const std::string& source) {
  const std::string head = "// partc_kernels ";
  if (!source.starts_with(head)) return "";
  std::string bytes;
  for (std::size_t at = head.size(); at + 1 < source.find('\n'); at += 2)
    bytes.push_back(static_cast<char>(std::stoi(source.substr(at, 2), nullptr, 16)));
  return bytes;
}

}  // namespace

extern "C" {

int cuInit(unsigned flags) {
  const std::lock_guard lock(changing);
  if (flags) broken("cuInit", "flags");
  opencl::machine();
  is_ready = true;
  return kSuccess;
}

int cuGetErrorName(int code, const char** name) {
  static const std::map<int, const char*> names{{kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
                                                {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                {kNoBinary, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                                                {kNotFound, "CUDA_ERROR_NOT_FOUND"},
                                                {kImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"}};
  const auto found = names.find(code);
  *name = found == names.end() ? nullptr : found->second;
  return found == names.end() ? kInvalidValue : kSuccess;
}

int cuDeviceGet(int* device, int number) {
  check_call("cuDeviceGet", false);
  *device = 0;
  return number ? kInvalidValue : kSuccess;
}

int cuDeviceGetName(char* name, int bytes, int) {
  check_call("cuDeviceGetName", false);
  std::snprintf(name, static_cast<std::size_t>(bytes), "stand-in");
  return kSuccess;
}

int cuDevicePrimaryCtxRetain(void** context, int) {
  const std::lock_guard lock(changing);
  check_call("cuDevicePrimaryCtxRetain", false);
  ++retained;
  *context = &context_handle;
  return kSuccess;
}

int cuDevicePrimaryCtxRelease_v2(int) {
  const std::lock_guard lock(changing);
  check_call("cuDevicePrimaryCtxRelease", false);
  if (!retained) broken("cuDevicePrimaryCtxRelease", "it is not retained");
  if (--retained) return kSuccess;
  if (!memory.empty() || !streams.empty() || !executables.empty() || !graphs.empty())
    broken("cuDevicePrimaryCtxRelease", "there are still " + std::to_string(memory.size()) + " buffers, " +
                                            std::to_string(streams.size()) + " streams, " +
                                            std::to_string(executables.size() + graphs.size()) + " graphs");
  return kSuccess;
}

int cuCtxSetCurrent(void* context) {
  check_call("cuCtxSetCurrent", false);
  if (context != &context_handle) broken("cuCtxSetCurrent", "an unknown context");
  current = context;
  return kSuccess;
}

int cuStreamCreate(Stream** stream, unsigned flags) {
  const std::lock_guard lock(changing);
  check_call("cuStreamCreate");
  *stream = *streams.insert(new Stream{flags != kNonBlocking}).first;
  return kSuccess;
}

int cuStreamDestroy_v2(Stream* stream) {
  const std::lock_guard lock(changing);
  check_call("cuStreamDestroy");
  check_live("cuStreamDestroy", streams, stream);
  if (stream->is_capturing) broken("cuStreamDestroy", "it is recording");
  streams.erase(stream);
  delete stream;
  return kSuccess;
}

int cuModuleLoadData(Module** module, const void* image) {
  const std::lock_guard lock(changing);
  check_call("cuModuleLoadData");
  const std::string source = static_cast<const char*>(image);
  const std::string digest = digest_in(source);
  if (digest.empty()) return kNoBinary;
  void* const program = opencl::built(source);
  if (!program) return kNoBinary;
  void* const constant = opencl::shared(digest.size());
  std::memcpy(constant, digest.data(), digest.size());
  memory[reinterpret_cast<std::uint64_t>(constant)] = digest.size();
  *module = *modules.insert(new Module{program, constant}).first;
  return kSuccess;
}

int cuModuleUnload(Module* module) {
  const std::lock_guard lock(changing);
  check_call("cuModuleUnload");
  check_live("cuModuleUnload", modules, module);
  for (const Graph* graph : executables)
    for (const Launch& launch : *graph)
      if (launch.module == module) broken("cuModuleUnload", "a graph still launches " + launch.name);
  memory.erase(reinterpret_cast<std::uint64_t>(module->digest));
  opencl::unshare(module->digest);
  std::erase_if(functions, [&](Function* function) {
    const bool is_of_it = function->module == module;
    if (is_of_it) delete function;
    return is_of_it;
  });
  opencl::release_program(module->program);
  modules.erase(module);
  delete module;
  return kSuccess;
}

int cuModuleGetGlobal_v2(unsigned long long* address, std::size_t* bytes, Module* module, const char* name) {
  const std::lock_guard lock(changing);
  check_call("cuModuleGetGlobal");
  check_live("cuModuleGetGlobal", modules, module);
  if (std::string(name) != "partc_kernels") return kNotFound;
  *address = reinterpret_cast<std::uint64_t>(module->digest);
  *bytes = memory.at(*address);
  return kSuccess;
}

int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  const std::lock_guard lock(changing);
  check_call("cuModuleGetFunction");
  check_live("cuModuleGetFunction", modules, module);
  if (opencl::arguments_of(module->program, name) < 0) return kNotFound;
  *function = *functions.insert(new Function{module, name}).first;
  return kSuccess;
}

int cuFuncSetAttribute(Function* function, int attribute, int value) {
  const std::lock_guard lock(changing);
  check_call("cuFuncSetAttribute");
  check_live("cuFuncSetAttribute", functions, function);
  if (attribute != 8) broken("cuFuncSetAttribute", "an unknown attribute");
  function->shared_bytes = value;
  return kSuccess;
}

int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  const std::lock_guard lock(changing);
  check_call("cuMemAlloc");
  if (!bytes) return kInvalidValue;
  void* const found = bytes > kMostBytes ? nullptr : opencl::shared(bytes);
  if (!found) return kOutOfMemory;
  std::memset(found, 0xA5, bytes);  // nobody may rely on zeros
  *address = reinterpret_cast<std::uint64_t>(found);
  memory[*address] = bytes;
  return kSuccess;
}

int cuMemFree_v2(unsigned long long address) {
  const std::lock_guard lock(changing);
  check_call("cuMemFree");
  opencl::finish();
  if (!memory.erase(address)) broken("cuMemFree", "no memory begins there, or it was freed before");
  for (const Graph* graph : executables)
    for (const Launch& launch : *graph)
      for (const std::uint64_t argument : launch.arguments) check_memory("cuMemFree of what a graph takes", argument, 1);
  opencl::unshare(reinterpret_cast<void*>(address));
  return kSuccess;
}

int cuMemcpyHtoD_v2(unsigned long long there, const void* here, std::size_t bytes) {
  const std::lock_guard lock(changing);
  check_call("cuMemcpyHtoD");
  check_memory("cuMemcpyHtoD", there, bytes);
  if (!legacy_is_free()) return kImplicit;
  opencl::finish();
  std::memcpy(reinterpret_cast<void*>(there), here, bytes);
  return kSuccess;
}

int cuMemcpyDtoH_v2(void* here, unsigned long long there, std::size_t bytes) {
  const std::lock_guard lock(changing);
  check_call("cuMemcpyDtoH");
  check_memory("cuMemcpyDtoH", there, bytes);
  if (!legacy_is_free()) return kImplicit;
  opencl::finish();
  std::memcpy(here, reinterpret_cast<const void*>(there), bytes);
  return kSuccess;
}

int cuMemsetD8_v2(unsigned long long there, unsigned char value, std::size_t bytes) {
  const std::lock_guard lock(changing);
  check_call("cuMemsetD8");
  check_memory("cuMemsetD8", there, bytes);
  if (!legacy_is_free()) return kImplicit;
  opencl::finish();
  std::memset(reinterpret_cast<void*>(there), value, bytes);
  return kSuccess;
}

int cuStreamBeginCapture_v2(Stream* stream, int mode) {
  const std::lock_guard lock(changing);
  check_call("cuStreamBeginCapture");
  check_live("cuStreamBeginCapture", streams, stream);
  if (stream->is_capturing) broken("cuStreamBeginCapture", "it is recording already");
  if (mode != 2) broken("cuStreamBeginCapture", "other threads could not allocate meanwhile: the mode is not RELAXED");
  if (stream->is_blocking) broken("cuStreamBeginCapture", "other threads could not copy meanwhile: the stream blocks");
  stream->is_capturing = true;
  recorded[stream] = *graphs.insert(new Graph).first;
  return kSuccess;
}

int cuStreamEndCapture(Stream* stream, Graph** graph) {
  const std::lock_guard lock(changing);
  check_call("cuStreamEndCapture");
  check_live("cuStreamEndCapture", streams, stream);
  if (!stream->is_capturing) broken("cuStreamEndCapture", "it is not recording");
  stream->is_capturing = false;
  *graph = recorded.at(stream);
  recorded.erase(stream);
  return kSuccess;
}

int cuLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream* stream, void** arguments,
                   void** extra) {
  const std::lock_guard lock(changing);
  check_call("cuLaunchKernel");
  check_live("cuLaunchKernel", functions, function);
  check_live("cuLaunchKernel", streams, stream);
  if (extra) broken("cuLaunchKernel", "extra");
  const bool fits = block_x * block_y * block_z <= 1024 && grid_y < 65536 && grid_z < 65536 &&
                    shared_bytes <= static_cast<unsigned>(function->shared_bytes);
  if (!fits || !grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z) return kInvalidValue;
  Launch launch{function->module, function->name, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {}};
  for (int at = 0; at < opencl::arguments_of(launch.module->program, launch.name); ++at) {
    launch.arguments.push_back(*static_cast<const std::uint64_t*>(arguments[at]));
    check_memory("cuLaunchKernel", launch.arguments.back(), 1);
  }
  if (!stream->is_capturing) broken("cuLaunchKernel", "outside of a recording");
  recorded.at(stream)->push_back(launch);
  return kSuccess;
}

int cuGraphDestroy(Graph* graph) {
  const std::lock_guard lock(changing);
  check_call("cuGraphDestroy");
  check_live("cuGraphDestroy", graphs, graph);
  graphs.erase(graph);
  delete graph;
  return kSuccess;
}

int cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long) {
  const std::lock_guard lock(changing);
  check_call("cuGraphInstantiate");
  check_live("cuGraphInstantiate", graphs, graph);
  *executable = *executables.insert(new Graph(*graph)).first;
  return kSuccess;
}

int cuGraphExecDestroy(Graph* executable) {
  const std::lock_guard lock(changing);
  check_call("cuGraphExecDestroy");
  check_live("cuGraphExecDestroy", executables, executable);
  opencl::finish();
  executables.erase(executable);
  delete executable;
  return kSuccess;
}

int cuGraphLaunch(Graph* executable, Stream* stream) {
  const std::lock_guard lock(changing);
  check_call("cuGraphLaunch");
  check_live("cuGraphLaunch", executables, executable);
  check_live("cuGraphLaunch", streams, stream);
  if (stream->is_capturing) broken("cuGraphLaunch", "the stream is recording");
  if (!stream->is_blocking) broken("cuGraphLaunch", "copies would not wait for this stream");
  for (const Launch& launch : *executable) compute("cuGraphLaunch", launch);
  return kSuccess;
}

}  // extern "C"
