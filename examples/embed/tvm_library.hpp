// A library of partc's tvm target and tensors of a safetensors file, for a program without Python.
// Needs C++17, the headers of the wheel apache-tvm-ffi, and libtvm_ffi.so and libtvm_runtime.so to run.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace partc {

namespace ffi = tvm::ffi;
using Tensors = std::map<std::string, ffi::Tensor>;

constexpr size_t kAlignment = 64;  // of every tensor that compiled code is given

/** Memory of a tensor: its own, or a part of a mapped file, which stays mapped. */
struct Memory {
  void AllocData(DLTensor* tensor, void* mapped) {
    const size_t bytes = ffi::GetDataSize(*tensor);
    const bool usable = mapped && reinterpret_cast<uintptr_t>(mapped) % kAlignment == 0;
    owned = !usable;
    tensor->data = usable ? mapped : std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
    if (!tensor->data) throw std::bad_alloc();
    if (owned && mapped) std::memcpy(tensor->data, mapped, bytes);
    if (owned && !mapped) std::memset(tensor->data, 0, bytes);
  }
  void FreeData(DLTensor* tensor) {
    if (owned) std::free(tensor->data);
  }
  bool owned = false;
};

/** A tensor of zeros, or one that shares memory with a mapped file where that lies right. */
inline ffi::Tensor make_tensor(const std::vector<int64_t>& shape, DLDataType dtype, void* mapped = nullptr) {
  return ffi::Tensor::FromNDAlloc(Memory(), ffi::ShapeView(shape.data(), shape.size()), dtype, {kDLCPU, 0}, mapped);
}

/** A whole file in memory, read when touched; changes stay in this process. */
inline char* map_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) throw std::runtime_error("cannot open " + path);
  void* data = mmap(nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  close(file);
  if (data == MAP_FAILED) throw std::runtime_error("cannot map " + path);
  return static_cast<char*>(data);
}

inline DLDataType dtype_of(const std::string& name) {
  if (name == "BOOL") return {kDLBool, 8, 1};
  const uint8_t code = name[0] == 'F' ? kDLFloat : name[0] == 'U' ? kDLUInt : kDLInt;
  return {code, static_cast<uint8_t>(std::stoi(name.substr(1))), 1};  // F32, I64, U8
}

inline std::vector<int64_t> numbers(const ffi::json::Value& list) {
  std::vector<int64_t> values;
  for (const ffi::Any& item : list.cast<ffi::json::Array>()) values.push_back(item.cast<int64_t>());
  return values;
}

/** Every tensor of a safetensors file: 8 bytes with the length of a JSON header, the header, the data. */
inline Tensors read_tensors(const std::string& path) {
  char* data = map_file(path);
  uint64_t length;
  std::memcpy(&length, data, sizeof(length));
  char* start = data + sizeof(length) + length;
  Tensors tensors;
  for (auto [key, value] : ffi::json::Parse(std::string(data + 8, length)).cast<ffi::json::Object>()) {
    const std::string name = key.cast<ffi::String>();
    if (name == "__metadata__") continue;
    const auto entry = value.cast<ffi::json::Object>();
    const std::string dtype = entry["dtype"].cast<ffi::String>();
    tensors.emplace(name, make_tensor(numbers(entry["shape"]), dtype_of(dtype), start + numbers(entry["data_offsets"])[0]));
  }
  return tensors;
}

/** The functions of a library, ready to be called on the processor. */
inline ffi::Module load_library(const std::string& path) {
  const auto executable = ffi::Module::LoadFromFile(path)->GetFunction("vm_load_executable").value();
  const auto machine = executable().cast<ffi::Module>();
  machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, 2);  // 2: memory is pooled
  return machine;
}

/** Call a function of a library; its outputs. States among the arguments are changed in place. */
inline std::vector<ffi::Tensor> call(const ffi::Module& machine, const std::string& name, const std::vector<ffi::Tensor>& arguments) {
  const auto function = machine->GetFunction(name);
  if (!function.has_value()) throw std::runtime_error("the library has no function " + name);
  std::vector<ffi::AnyView> views(arguments.begin(), arguments.end());
  ffi::Any result;
  function.value().CallPacked(views.data(), static_cast<int32_t>(views.size()), &result);
  std::vector<ffi::Tensor> outputs;
  for (const ffi::Any& item : result.cast<ffi::Array<ffi::Any>>()) outputs.push_back(item.cast<ffi::Tensor>());
  return outputs;
}

}  // namespace partc
