/** OpenCL: the source is compiled when it is loaded; a list of launches has a kernel object for each, whose arguments are
set once. */
#include "engines/gpu/opencl.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "engines/gpu/shared_library.hpp"
#include "format/facts.gen.hpp"
#include "format/text.hpp"

namespace partc::engines::gpu {
namespace {

using Result = int;
using Bits = std::uint64_t;
struct Platform;
struct Device;
struct Context;
struct Queue;
struct Program;
struct MemoryObject;
struct KernelObject;
struct Event;

constexpr Bits kGpu = 1 << 2, kAnyDevice = 0xFFFFFFFF;  // CL_DEVICE_TYPE
constexpr Bits kReadWrite = 1;                          // CL_MEM_READ_WRITE
constexpr unsigned kDeviceName = 0x102B, kBuildLog = 0x1183, kRegion = 0x1220, kIsBlocking = 1;
constexpr std::size_t kMostPlatforms = 16, kNameBytes = 256, kLogBytes = 16384, kToldBytes = 2000;
constexpr const char* kOptions = "-cl-std=CL1.2";

/** cl_buffer_region. */
struct Region {
  std::size_t origin, bytes;
};

/** Names of the errors that a step or a loading may meet. */
std::string name_of(Result code) {
  static const std::map<Result, const char*> names{
      {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"}, {-5, "CL_OUT_OF_RESOURCES"},     {-6, "CL_OUT_OF_HOST_MEMORY"},
      {-46, "CL_INVALID_KERNEL_NAME"},          {-52, "CL_INVALID_KERNEL_ARGS"}, {-54, "CL_INVALID_WORK_GROUP_SIZE"},
      {-61, "CL_INVALID_BUFFER_SIZE"},
  };
  const auto found = names.find(code);
  return found == names.end() ? std::to_string(code) : found->second;
}

/** The functions of the library. */
struct OpenCl {
  SharedLibrary library{{"libOpenCL.so.1", "libOpenCL.so"},
                        "there is no libOpenCL.so.1, which the driver of a GPU brings (Debian: ocl-icd-libopencl1)"};
  Function<Result(unsigned, Platform**, unsigned*)> platform_ids{library, "clGetPlatformIDs"};
  Function<Result(Platform*, Bits, unsigned, Device**, unsigned*)> device_ids{library, "clGetDeviceIDs"};
  Function<Result(Device*, unsigned, std::size_t, void*, std::size_t*)> device_info{library, "clGetDeviceInfo"};
  Function<Context*(const std::intptr_t*, unsigned, Device* const*, void*, void*, Result*)> create_context{
      library, "clCreateContext"};
  Function<Queue*(Context*, Device*, Bits, Result*)> create_queue{library, "clCreateCommandQueue"};
  Function<Program*(Context*, unsigned, const char**, const std::size_t*, Result*)> create_program{
      library, "clCreateProgramWithSource"};
  Function<Result(Program*, unsigned, Device* const*, const char*, void*, void*)> build{library, "clBuildProgram"};
  Function<Result(Program*, Device*, unsigned, std::size_t, void*, std::size_t*)> build_info{library,
                                                                                             "clGetProgramBuildInfo"};
  Function<MemoryObject*(Context*, Bits, std::size_t, void*, Result*)> create_buffer{library, "clCreateBuffer"};
  Function<MemoryObject*(MemoryObject*, Bits, unsigned, const void*, Result*)> create_part{library,
                                                                                           "clCreateSubBuffer"};
  Function<KernelObject*(Program*, const char*, Result*)> create_kernel{library, "clCreateKernel"};
  Function<Result(KernelObject*, unsigned, std::size_t, const void*)> set_argument{library, "clSetKernelArg"};
  Function<Result(Queue*, MemoryObject*, unsigned, std::size_t, std::size_t, const void*, unsigned, Event* const*,
                  Event**)>
      write{library, "clEnqueueWriteBuffer"};
  Function<Result(Queue*, MemoryObject*, unsigned, std::size_t, std::size_t, void*, unsigned, Event* const*, Event**)>
      read{library, "clEnqueueReadBuffer"};
  Function<Result(Queue*, MemoryObject*, const void*, std::size_t, std::size_t, std::size_t, unsigned, Event* const*,
                  Event**)>
      fill{library, "clEnqueueFillBuffer"};
  Function<Result(Queue*, KernelObject*, unsigned, const std::size_t*, const std::size_t*, const std::size_t*, unsigned,
                  Event* const*, Event**)>
      launch{library, "clEnqueueNDRangeKernel"};
  Function<Result(Queue*)> flush{library, "clFlush"};
  Function<Result(Context*)> release_context{library, "clReleaseContext"};
  Function<Result(Queue*)> release_queue{library, "clReleaseCommandQueue"};
  Function<Result(Program*)> release_program{library, "clReleaseProgram"};
  Function<Result(MemoryObject*)> release_memory{library, "clReleaseMemObject"};
  Function<Result(KernelObject*)> release_kernel{library, "clReleaseKernel"};

  template <class... Known, class... Given>
  void call(const Function<Result(Known...)>& function, Given... given) const {
    if (const Result code = function(given...)) throw DriverError{std::string(function.name()) + ": " + name_of(code)};
  }
  /** What a function returns that tells its error in its last argument. */
  template <class Made, class... Known, class... Given>
  Made* made(const Function<Made*(Known...)>& function, Given... given) const {
    Result code = 0;
    Made* const found = function(given..., &code);
    if (code || !found) throw DriverError{std::string(function.name()) + ": " + name_of(code)};
    return found;
  }
};

const OpenCl& cl() {
  static const OpenCl found;
  return found;
}

/** The first GPU of all platforms, else the first device. */
Device* first_device() {
  std::array<Platform*, kMostPlatforms> platforms{};
  unsigned count = 0;
  cl().platform_ids(kMostPlatforms, platforms.data(), &count);
  for (const Bits kind : {kGpu, kAnyDevice}) {
    for (std::size_t at = 0; at < std::min<std::size_t>(count, kMostPlatforms); ++at) {
      Device* device = nullptr;
      unsigned found = 0;
      if (!cl().device_ids(platforms[at], kind, 1, &device, &found) && found) return device;
    }
  }
  throw DriverError{"OpenCL has no device here; `clinfo` lists them"};
}

/** A device that is in use, and its queue. */
struct Session {
  Session() {
    std::array<char, kNameBytes> text{};
    cl().call(cl().device_info, device, kDeviceName, kNameBytes - 1, static_cast<void*>(text.data()),
              static_cast<std::size_t*>(nullptr));
    name = text.data();
    void* const none = nullptr;
    context = cl().made(cl().create_context, static_cast<const std::intptr_t*>(nullptr), 1u, &device, none, none);
    try {
      queue = cl().made(cl().create_queue, context, device, Bits{0});
    } catch (const DriverError&) {
      cl().release_context(context);
      throw;
    }
  }
  ~Session() {
    cl().release_queue(queue);
    cl().release_context(context);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Device* device = first_device();
  Context* context = nullptr;
  Queue* queue = nullptr;
  std::string name;
};
using SessionPtr = std::shared_ptr<const Session>;

/** A buffer, or a part of `whole`, which lives as long. */
struct ClMemory : Memory {
  ClMemory(SessionPtr in, MemoryObject* made, std::uint64_t size, Buffer of = nullptr)
      : session(std::move(in)), object(made), bytes(size), whole(std::move(of)) {}
  ~ClMemory() override { cl().release_memory(object); }

  SessionPtr session;
  MemoryObject* object;
  std::uint64_t bytes;
  Buffer whole;
};

const ClMemory& held(const Memory& buffer) { return static_cast<const ClMemory&>(buffer); }

struct ClCode : DeviceCode {
  ClCode(SessionPtr in, Program* made) : session(std::move(in)), program(made) {}
  ~ClCode() override { cl().release_program(program); }

  SessionPtr session;
  Program* program;
};

/** One launch: a kernel with its arguments, and its threads. */
struct ClKernel {
  ClKernel(Program* program, const Start& start);
  ~ClKernel() { cl().release_kernel(object); }
  ClKernel(const ClKernel&) = delete;
  ClKernel& operator=(const ClKernel&) = delete;

  KernelObject* object;
  std::array<std::size_t, 3> all{}, of_block{};
};

/** The kernel of a function. */
KernelObject* kernel_of(Program* program, const kernel_plan::KernelLaunch& launch) {
  if (launch.shared_bytes)
    throw DriverError{launch.function + ": OpenCL has no memory of a block besides what the code declares"};
  return cl().made(cl().create_kernel, program, launch.function.c_str());
}

ClKernel::ClKernel(Program* program, const Start& start) : object(kernel_of(program, *start.launch)) {
  try {
    for (std::size_t at = 0; at < start.buffers.size(); ++at) {
      const void* const argument = &held(*start.buffers[at]).object;
      cl().call(cl().set_argument, object, static_cast<unsigned>(at), sizeof(MemoryObject*), argument);
    }
  } catch (const DriverError&) {
    cl().release_kernel(object);
    throw;
  }
  for (std::size_t axis = 0; axis < all.size(); ++axis) {
    of_block[axis] = start.launch->block[axis];
    all[axis] = start.launch->grid[axis] * of_block[axis];
  }
}

/** Launches in their order, and what they take. */
class ClLaunches : public Launches {
 public:
  ClLaunches(SessionPtr session, CodePtr code, std::vector<Start> starts)
      : session_(std::move(session)), code_(std::move(code)), starts_(std::move(starts)) {
    Program* const program = static_cast<const ClCode&>(*code_).program;
    for (const Start& start : starts_) kernels_.push_back(std::make_unique<ClKernel>(program, start));
  }
  void start() const override {
    Event* const* const none = nullptr;
    Event** const untold = nullptr;
    const std::size_t* const from_zero = nullptr;
    for (const auto& kernel : kernels_)
      cl().call(cl().launch, session_->queue, kernel->object, 3u, from_zero, kernel->all.data(),
                kernel->of_block.data(), 0u, none, untold);
    cl().call(cl().flush, session_->queue);
  }

 private:
  SessionPtr session_;
  CodePtr code_;
  std::vector<Start> starts_;
  std::vector<std::unique_ptr<ClKernel>> kernels_;
};

class OpenClDriver : public Driver {
 public:
  const std::string& name() const override { return session_->name; }

  CodePtr load(const std::string& content, std::string_view digest) const override {
    const std::string first = "// " + std::string(GPU_DIGEST_NAME) + " " + to_hex(digest);
    if (content.substr(0, content.find('\n')) != first) throw DriverError{"its kernels are not those of the plan"};
    const char* text = content.data();
    const std::size_t bytes = content.size();
    Program* const program = cl().made(cl().create_program, session_->context, 1u, &text, &bytes);
    auto code = std::make_shared<ClCode>(session_, program);
    void* const none = nullptr;
    if (const Result failed = cl().build(program, 1, &session_->device, kOptions, none, none))
      throw DriverError{"clBuildProgram: " + std::to_string(failed) + ": " + log_of(program)};
    return code;
  }

  Buffer allocate(std::uint64_t bytes) const override {
    void* const none = nullptr;
    MemoryObject* const object =
        cl().made(cl().create_buffer, session_->context, kReadWrite, static_cast<std::size_t>(bytes), none);
    auto memory = std::make_shared<ClMemory>(session_, object, bytes);
    clear(*memory);
    return memory;
  }

  Buffer part(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const override {
    const Region region{offset, bytes};
    const void* const told = &region;
    MemoryObject* const object = cl().made(cl().create_part, held(*buffer).object, kReadWrite, kRegion, told);
    return std::make_shared<ClMemory>(session_, object, bytes, buffer);
  }

  void write(const Memory& buffer, std::uint64_t offset, const std::byte* data, std::uint64_t bytes) const override {
    copy(cl().write, buffer, offset, static_cast<const void*>(data), bytes);
  }

  void read(const Memory& buffer, std::uint64_t offset, std::byte* data, std::uint64_t bytes) const override {
    copy(cl().read, buffer, offset, static_cast<void*>(data), bytes);
  }

  void clear(const Memory& buffer) const override {
    const unsigned char zero = 0;
    Event* const* const none = nullptr;
    Event** const untold = nullptr;
    const void* const pattern = &zero;
    cl().call(cl().fill, session_->queue, held(buffer).object, pattern, sizeof zero, std::size_t{0},
              static_cast<std::size_t>(held(buffer).bytes), 0u, none, untold);
  }

  std::unique_ptr<const Launches> prepare(CodePtr code, std::vector<Start> starts) const override {
    return std::make_unique<ClLaunches>(session_, std::move(code), std::move(starts));
  }

 private:
  template <class Copy, class Data>
  void copy(const Copy& function, const Memory& buffer, std::uint64_t offset, Data* data, std::uint64_t bytes) const {
    Event* const* const none = nullptr;
    Event** const untold = nullptr;
    cl().call(function, session_->queue, held(buffer).object, kIsBlocking, static_cast<std::size_t>(offset),
              static_cast<std::size_t>(bytes), data, 0u, none, untold);
  }
  std::string log_of(Program* program) const {
    std::string text(kLogBytes, '\0');
    cl().build_info(program, session_->device, kBuildLog, text.size() - 1, text.data(), nullptr);
    return text.substr(0, std::min(text.find('\0'), kToldBytes));
  }

  SessionPtr session_ = std::make_shared<const Session>();
};

}  // namespace

std::unique_ptr<const Driver> open_opencl() { return std::make_unique<OpenClDriver>(); }

}  // namespace partc::engines::gpu
