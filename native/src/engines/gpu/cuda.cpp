/** CUDA: a list of launches is recorded once as a graph, which a step starts with one call.

One by one, launches would cost 5 to 10 us each on a Jetson. Copies are of the default stream, which waits for the stream
of graphs, and that for it. A graph is recorded in a stream that does not wait: else no other thread could copy meanwhile.
*/
#include "engines/gpu/cuda.hpp"

#include <array>
#include <utility>

#include "engines/gpu/shared_library.hpp"
#include "format/facts.gen.hpp"

namespace partc::engines::gpu {
namespace {

using Address = unsigned long long;
using Device = int;
using Result = int;
struct Context;
struct Stream;
struct Module;
struct DeviceFunction;
struct Graph;
struct GraphExecutable;

constexpr unsigned kWaits = 0, kDoesNotWait = 1;  // CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING
constexpr int kRelaxed = 2;      // CU_STREAM_CAPTURE_MODE_RELAXED: other threads may allocate meanwhile
constexpr int kSharedBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr std::uint64_t kUsualSharedBytes = 48 * 1024;  // a function must ask for more with that attribute
constexpr int kNameBytes = 256;
constexpr const char* kDigestName = GPU_DIGEST_NAME.data();

/** The functions of the library. */
struct Cuda {
  SharedLibrary library{{"libcuda.so.1"}, "there is no libcuda.so.1, which NVIDIA's driver brings"};
  Function<Result(unsigned)> init{library, "cuInit"};
  Function<Result(Result, const char**)> error_name{library, "cuGetErrorName"};
  Function<Result(Device*, int)> device_get{library, "cuDeviceGet"};
  Function<Result(char*, int, Device)> device_name{library, "cuDeviceGetName"};
  Function<Result(Context**, Device)> context_retain{library, "cuDevicePrimaryCtxRetain"};
  Function<Result(Device)> context_release{library, "cuDevicePrimaryCtxRelease_v2"};
  Function<Result(Context*)> set_current{library, "cuCtxSetCurrent"};
  Function<Result(Stream**, unsigned)> stream_create{library, "cuStreamCreate"};
  Function<Result(Stream*)> stream_destroy{library, "cuStreamDestroy_v2"};
  Function<Result(Module**, const void*)> module_load{library, "cuModuleLoadData"};
  Function<Result(Module*)> module_unload{library, "cuModuleUnload"};
  Function<Result(Address*, std::size_t*, Module*, const char*)> module_global{library, "cuModuleGetGlobal_v2"};
  Function<Result(DeviceFunction**, Module*, const char*)> module_function{library, "cuModuleGetFunction"};
  Function<Result(DeviceFunction*, int, int)> function_set{library, "cuFuncSetAttribute"};
  Function<Result(Address*, std::size_t)> allocate{library, "cuMemAlloc_v2"};
  Function<Result(Address)> free{library, "cuMemFree_v2"};
  Function<Result(Address, const void*, std::size_t)> copy_there{library, "cuMemcpyHtoD_v2"};
  Function<Result(void*, Address, std::size_t)> copy_back{library, "cuMemcpyDtoH_v2"};
  Function<Result(Address, unsigned char, std::size_t)> fill{library, "cuMemsetD8_v2"};
  Function<Result(Stream*, int)> begin_capture{library, "cuStreamBeginCapture_v2"};
  Function<Result(Stream*, Graph**)> end_capture{library, "cuStreamEndCapture"};
  Function<Result(DeviceFunction*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream*,
                  void**, void**)>
      launch{library, "cuLaunchKernel"};
  Function<Result(Graph*)> graph_destroy{library, "cuGraphDestroy"};
  Function<Result(GraphExecutable**, Graph*, unsigned long long)> instantiate{library, "cuGraphInstantiateWithFlags"};
  Function<Result(GraphExecutable*, Stream*)> graph_launch{library, "cuGraphLaunch"};
  Function<Result(GraphExecutable*)> executable_destroy{library, "cuGraphExecDestroy"};

  template <class... Known, class... Given>
  void call(const Function<Result(Known...)>& function, Given... given) const {
    check(function.name(), function(given...));
  }
  void check(const char* name, Result code) const {
    if (!code) return;
    const char* text = nullptr;
    error_name(code, &text);
    throw DriverError{std::string(name) + ": " + (text ? text : std::to_string(code))};
  }
};

const Cuda& cuda() {
  static const Cuda found;
  return found;
}

/** A device that is in use, and its streams. */
struct Session {
  Session() {
    const Cuda& library = cuda();
    library.call(library.init, 0u);
    library.call(library.device_get, &device, 0);
    std::array<char, kNameBytes> text{};
    library.call(library.device_name, text.data(), kNameBytes - 1, device);
    name = text.data();
    library.call(library.context_retain, &context, device);
    try {
      enter();
      library.call(library.stream_create, &stream, kWaits);
      library.call(library.stream_create, &recorder, kDoesNotWait);
    } catch (const DriverError&) {
      close();
      throw;
    }
  }
  ~Session() { close(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /** Every thread that calls has to say in which context. */
  void enter() const { cuda().call(cuda().set_current, context); }
  /** The same where what is given back cannot say that it failed. */
  bool enters() const { return !cuda().set_current(context); }

  Device device = 0;
  Context* context = nullptr;
  Stream* stream = nullptr;
  Stream* recorder = nullptr;
  std::string name;

 private:
  void close() {
    if (enters()) {
      if (recorder) cuda().stream_destroy(recorder);
      if (stream) cuda().stream_destroy(stream);
    }
    cuda().context_release(device);
  }
};
using SessionPtr = std::shared_ptr<const Session>;

/** Memory of the device, or a part of `whole`, which lives as long. */
struct CudaMemory : Memory {
  CudaMemory(SessionPtr in, Address at, std::uint64_t size, Buffer of = nullptr)
      : session(std::move(in)), address(at), bytes(size), whole(std::move(of)) {}
  ~CudaMemory() override {
    if (!whole && session->enters()) cuda().free(address);
  }

  SessionPtr session;
  Address address;
  std::uint64_t bytes;
  Buffer whole;
};

const CudaMemory& held(const Memory& buffer) { return static_cast<const CudaMemory&>(buffer); }

struct CudaCode : DeviceCode {
  explicit CudaCode(SessionPtr in) : session(std::move(in)) {}
  ~CudaCode() override {
    if (module && session->enters()) cuda().module_unload(module);
  }

  SessionPtr session;
  Module* module = nullptr;
};

/** A recorded list of launches; it has what they take. */
class CudaGraph : public Launches {
 public:
  CudaGraph(SessionPtr session, CodePtr code, std::vector<Start> starts)
      : session_(std::move(session)), code_(std::move(code)), starts_(std::move(starts)) {
    session_->enter();
    Graph* const graph = recorded();
    const Result failed = cuda().instantiate(&executable_, graph, 0ull);
    cuda().graph_destroy(graph);
    cuda().check(cuda().instantiate.name(), failed);
  }
  ~CudaGraph() override {
    if (session_->enters()) cuda().executable_destroy(executable_);
  }
  void start() const override {
    session_->enter();
    cuda().call(cuda().graph_launch, executable_, session_->stream);
  }

 private:
  Graph* recorded() const;
  void launch(const Start& start) const;

  SessionPtr session_;
  CodePtr code_;
  std::vector<Start> starts_;
  GraphExecutable* executable_ = nullptr;
};

Graph* CudaGraph::recorded() const {
  cuda().call(cuda().begin_capture, session_->recorder, kRelaxed);
  Graph* graph = nullptr;
  try {
    for (const Start& start : starts_) launch(start);
  } catch (const DriverError&) {
    cuda().end_capture(session_->recorder, &graph);
    if (graph) cuda().graph_destroy(graph);
    throw;
  }
  cuda().call(cuda().end_capture, session_->recorder, &graph);
  return graph;
}

void CudaGraph::launch(const Start& start) const {
  const kernel_plan::KernelLaunch& launch = *start.launch;
  DeviceFunction* function = nullptr;
  cuda().call(cuda().module_function, &function, static_cast<const CudaCode&>(*code_).module, launch.function.c_str());
  const auto shared = static_cast<unsigned>(launch.shared_bytes);
  if (launch.shared_bytes > kUsualSharedBytes)
    cuda().call(cuda().function_set, function, kSharedBytes, static_cast<int>(shared));
  // The driver copies the values during the call.
  std::vector<Address> values;
  for (const Buffer& buffer : start.buffers) values.push_back(held(*buffer).address);
  std::vector<void*> arguments;
  for (Address& value : values) arguments.push_back(&value);
  const auto size = [](std::uint64_t number) { return static_cast<unsigned>(number); };
  const auto &grid = launch.grid, &block = launch.block;
  cuda().call(cuda().launch, function, size(grid[0]), size(grid[1]), size(grid[2]), size(block[0]), size(block[1]),
              size(block[2]), shared, session_->recorder, arguments.data(), static_cast<void**>(nullptr));
}

class CudaDriver : public Driver {
 public:
  const std::string& name() const override { return session_->name; }

  CodePtr load(const std::string& content, std::string_view digest) const override {
    session_->enter();
    auto code = std::make_shared<CudaCode>(session_);
    cuda().call(cuda().module_load, &code->module, static_cast<const void*>(content.data()));
    Address address = 0;
    std::size_t bytes = 0;
    cuda().call(cuda().module_global, &address, &bytes, code->module, kDigestName);
    std::string found(bytes == digest.size() ? bytes : 0, '\0');
    if (!found.empty()) cuda().call(cuda().copy_back, static_cast<void*>(found.data()), address, bytes);
    if (found != digest) throw DriverError{"its kernels are not those of the plan"};
    return code;
  }

  Buffer allocate(std::uint64_t bytes) const override {
    session_->enter();
    Address address = 0;
    cuda().call(cuda().allocate, &address, static_cast<std::size_t>(bytes));
    auto memory = std::make_shared<CudaMemory>(session_, address, bytes);
    clear(*memory);
    return memory;
  }

  Buffer part(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const override {
    return std::make_shared<CudaMemory>(session_, held(*buffer).address + offset, bytes, buffer);
  }

  void write(const Memory& buffer, std::uint64_t offset, const std::byte* data, std::uint64_t bytes) const override {
    session_->enter();
    cuda().call(cuda().copy_there, held(buffer).address + offset, static_cast<const void*>(data),
                static_cast<std::size_t>(bytes));
  }

  void read(const Memory& buffer, std::uint64_t offset, std::byte* data, std::uint64_t bytes) const override {
    session_->enter();
    cuda().call(cuda().copy_back, static_cast<void*>(data), held(buffer).address + offset,
                static_cast<std::size_t>(bytes));
  }

  void clear(const Memory& buffer) const override {
    session_->enter();
    cuda().call(cuda().fill, held(buffer).address, static_cast<unsigned char>(0),
                static_cast<std::size_t>(held(buffer).bytes));
  }

  std::unique_ptr<const Launches> prepare(CodePtr code, std::vector<Start> starts) const override {
    return std::make_unique<CudaGraph>(session_, std::move(code), std::move(starts));
  }

 private:
  SessionPtr session_ = std::make_shared<const Session>();
};

}  // namespace

std::unique_ptr<const Driver> open_cuda() { return std::make_unique<CudaDriver>(); }

}  // namespace partc::engines::gpu
