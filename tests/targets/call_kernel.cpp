// call_kernel LIBRARY FILE TYPE...: call the kernel `main` of a library with tensors that lie in a file, each at a
// multiple of 64, and write them back as the kernel left them. A type is CODE,BITS,SIZE,SIZE... in numbers of DLPack.
// The little of TVM's runtime that a kernel calls is below, serial.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

extern "C" void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count) {
  std::fprintf(stderr, "%s: ", kind);
  for (int32_t part = 0; part < count; ++part) std::fputs(parts[part], stderr);
}

namespace {

struct Tensor {
  char* data;
  int32_t device[2];
  int32_t axes;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t offset;
};

struct Argument {
  int32_t type;
  uint32_t zero;
  void* value;
};

struct Group {
  void* handle;
  int32_t tasks;
};

constexpr int32_t kTensor = 7;

int launch(int (*task)(int, Group*, void*), void* closure, int) {
  Group one{nullptr, 1};
  return task(0, &one, closure);
}

void* allocate(int, int, uint64_t bytes, int, int) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); }

int release(int, int, void* memory) {
  std::free(memory);
  return 0;
}

void set(void* library, const char* name, void* function) {
  if (void* place = dlsym(library, name)) *static_cast<void**>(place) = function;
}

std::vector<int64_t> numbers_of(const char* text) {
  std::vector<int64_t> numbers;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) numbers.push_back(std::stoll(word));
  return numbers;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 2;
  void* library = dlopen(words[1], RTLD_NOW);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  set(library, "__TVMBackendParallelLaunch", reinterpret_cast<void*>(launch));
  set(library, "__TVMBackendAllocWorkspace", reinterpret_cast<void*>(allocate));
  set(library, "__TVMBackendFreeWorkspace", reinterpret_cast<void*>(release));
  using Kernel = int (*)(void*, const Argument*, int32_t, Argument*);
  const auto kernel = reinterpret_cast<Kernel>(dlsym(library, "__tvm_ffi_main"));
  if (!kernel) return std::fprintf(stderr, "no kernel\n"), 1;

  std::ifstream input(words[2], std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(input), {}};
  char* memory = static_cast<char*>(std::aligned_alloc(64, (content.size() + 63) / 64 * 64));
  content.copy(memory, content.size());
  std::vector<std::vector<int64_t>> types;
  for (int place = 3; place < count; ++place) types.push_back(numbers_of(words[place]));
  std::vector<Tensor> tensors;
  uint64_t at = 0;
  for (std::vector<int64_t>& type : types) {
    uint64_t bytes = type[1] / 8;
    for (size_t axis = 2; axis < type.size(); ++axis) bytes *= type[axis];
    const auto code = static_cast<uint8_t>(type[0]), bits = static_cast<uint8_t>(type[1]);
    const auto axes = static_cast<int32_t>(type.size() - 2);
    tensors.push_back({memory + at, {1, 0}, axes, code, bits, 1, type.data() + 2, nullptr, 0});
    at += (bytes + 63) / 64 * 64;
  }
  std::vector<Argument> arguments;
  for (Tensor& tensor : tensors) arguments.push_back({kTensor, 0, &tensor});
  Argument result{};
  const int failed = kernel(nullptr, arguments.data(), static_cast<int32_t>(arguments.size()), &result);
  std::ofstream(words[2], std::ios::binary).write(memory, static_cast<std::streamsize>(content.size()));
  return failed ? 1 : 0;
}
