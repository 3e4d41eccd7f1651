// A library of partc's tvm target for a processor, its kernel plan, and tensors of safetensors files.
// Needs C++17 and POSIX; nothing of TVM, nothing of partc. Trusts its files: check their SHA-256 first.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <numeric>

#include "json.hpp"

namespace partc {

constexpr size_t kAlignment = 64;  // of every tensor that a kernel is given

/** What kernels take: DLPack's DLTensor, behind a pointer with TVM's number for it. */
struct Tensor {
  void* data;
  int32_t device = 1, device_number = 0, axes = 0;  // 1: a processor
  uint8_t code = 0, bits = 0;
  uint16_t lanes = 1;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;  // none: there are no gaps
  uint64_t offset = 0;
};
struct Argument {
  int32_t type = 7;
  uint32_t padding = 0;
  const Tensor* tensor;
};
struct Call {
  void* kernel;
  const Argument* arguments;
  int64_t count;
};

/** Memory with an element type and a shape. */
struct Array {
  std::string dtype;  // numpy's name
  std::vector<int64_t> shape;
  std::shared_ptr<char> data;

  size_t bits() const { return dtype == "bool" ? 8 : std::stoi(dtype.substr(dtype.find_first_of("123468"))); }
  size_t count() const { return std::accumulate(shape.begin(), shape.end(), size_t{1}, std::multiplies<size_t>()); }
  size_t bytes() const { return count() * bits() / 8; }
  uint8_t code() const {
    if (dtype == "bool") return 6;
    return dtype[0] == 'i' ? 0 : dtype[0] == 'u' ? 1 : dtype[0] == 'f' ? 2 : 4;  // 4: bfloat16
  }
};

/** Zeros. */
inline std::shared_ptr<char> allocate(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, bytes + 1)) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return {static_cast<char*>(memory), std::free};
}

inline Array make_array(const std::string& dtype, const std::vector<int64_t>& shape) {
  Array array{dtype, shape, nullptr};
  array.data = allocate(array.bytes());
  return array;
}

/** Every tensor of a safetensors file: 8 bytes with the length of a JSON header, the header, the data. */
inline std::map<std::string, Array> read_tensors(const std::string& path) {
  static const std::map<std::string, std::string> kinds = {{"F", "float"}, {"BF", "bfloat"}, {"I", "int"}, {"U", "uint"}};
  const int file = open(path.c_str(), O_RDONLY);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) throw std::runtime_error("cannot open " + path);
  char* mapped = static_cast<char*>(mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, file, 0));
  close(file);
  if (mapped == MAP_FAILED) throw std::runtime_error("cannot map " + path);
  uint64_t length;
  std::memcpy(&length, mapped, sizeof(length));
  std::map<std::string, Array> tensors;
  for (const auto& [name, entry] : JsonReader(std::string(mapped + 8, length)).read().fields) {
    if (name == "__metadata__") continue;
    const std::string kind = entry["dtype"].text;
    const size_t digits = kind.find_first_of("123468");
    Array array{kind == "BOOL" ? "bool" : kinds.at(kind.substr(0, digits)) + kind.substr(digits), entry["shape"].numbers(), {}};
    char* data = mapped + 8 + length + entry["data_offsets"][0].number();
    if (reinterpret_cast<uintptr_t>(data) % kAlignment == 0) {
      array.data = {data, [](char*) {}};  // the file stays mapped
    } else {
      array.data = allocate(array.bytes());
      std::memcpy(array.data.get(), data, array.bytes());
    }
    tensors.emplace(name, array);
  }
  return tensors;
}

/** A library and its plan. One thread may use it. */
class Library {
 public:
  explicit Library(const std::string& path) : plan_(read_json(path.substr(0, path.rfind('/') + 1) + "kernels.json")) {
    code_ = dlopen(path.find('/') == std::string::npos ? ("./" + path).c_str() : path.c_str(), RTLD_NOW);
    if (!code_) throw std::runtime_error(dlerror());
    run_ = reinterpret_cast<int64_t (*)(const Call*, int64_t)>(find("partc_run"));
    int64_t largest = 0;
    for (const auto& [name, function] : plan_["functions"].fields) largest = std::max(largest, function["arena_bytes"].number());
    arena_ = allocate(largest);
    for (const Json& constant : plan_["constants"].items) {
      constants_.push_back(make_array(constant["dtype"].text, constant["shape"].numbers()));
      decode(constant["data"].text, constants_.back().data.get());
    }
  }

  /** Call a function; its outputs. States among the arguments are changed in place. */
  std::vector<Array> call(const std::string& name, const std::vector<Array>& parameters) {
    const Json& function = plan_["functions"][name];
    const auto& calls = function["calls"].items;
    size_t count = 0;
    for (const Json& call : calls) count += call["arguments"].items.size();
    // A program that calls often makes these tables once for all steps.
    std::vector<Tensor> tensors;
    std::vector<Argument> arguments;
    std::vector<std::vector<int64_t>> shapes;
    std::vector<Call> prepared;
    tensors.reserve(count), arguments.reserve(count), shapes.reserve(count);
    for (const Json& call : calls) {
      const auto& places = call["arguments"].items;
      const Json& kinds = plan_["kernels"][call["kernel"].text]["parameters"];
      prepared.push_back({find("__tvm_ffi_" + call["kernel"].text), arguments.data() + arguments.size(), (int64_t)places.size()});
      for (size_t i = 0; i < places.size(); ++i) {
        shapes.push_back(kinds[i]["shape"].numbers());
        const Array kind{kinds[i]["dtype"].text, shapes.back(), nullptr};
        Tensor tensor{address(places[i], parameters)};
        tensor.axes = shapes.back().size(), tensor.shape = shapes.back().data();
        tensor.code = kind.code(), tensor.bits = kind.bits();
        tensors.push_back(tensor);
        arguments.push_back({7, 0, &tensors.back()});
      }
    }
    if (const int64_t failed = run_(prepared.data(), prepared.size()))
      throw std::runtime_error(calls[failed - 1]["kernel"].text + ": there is not enough memory");
    std::vector<Array> outputs;
    for (const Json& output : function["outputs"].items) {
      outputs.push_back(make_array(output["dtype"].text, output["shape"].numbers()));
      std::memcpy(outputs.back().data.get(), address(output["place"], parameters), outputs.back().bytes());
    }
    return outputs;
  }

 private:
  void* find(const std::string& symbol) const {
    void* found = dlsym(code_, symbol.c_str());
    if (!found) throw std::runtime_error("the library has no " + symbol);
    return found;
  }

  void* address(const Json& place, const std::vector<Array>& parameters) const {
    const int64_t at = place[1].number();
    if (place[0].text == "arena") return arena_.get() + at;
    return (place[0].text == "parameter" ? parameters : constants_).at(at).data.get();
  }

  /** base64. */
  static void decode(const std::string& text, char* to) {
    static const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0, count = 0;
    for (const char letter : text.substr(0, text.find('='))) {
      bits = bits << 6 | digits.find(letter);
      if ((count += 6) >= 8) *to++ = bits >> (count -= 8) & 0xff;
    }
  }

  Json plan_;
  void* code_;
  int64_t (*run_)(const Call*, int64_t);
  std::shared_ptr<char> arena_;
  std::vector<Array> constants_;
};

}  // namespace partc
