#include "engines/ort_api.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "errors.hpp"

namespace partc::engines::ort {
namespace {

constexpr const char* kVariable = "PARTC_ONNXRUNTIME";
constexpr const char* kName = "libonnxruntime.so";

/** What the library exports under one name. */
struct Base {
  const void* const* (*table)(std::uint32_t version);
  const char* (*version)();
};

/** The latest library in the folder of this program; empty where there is none. */
std::string beside() {
  std::error_code none;
  std::string found;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (const auto& file : std::filesystem::directory_iterator(folder, none)) {
    const bool is_one = file.path().filename().string().starts_with(kName);
    if (is_one && file.path().string() > found) found = file.path().string();
  }
  return found;
}

Error missing(const std::string& message, const std::string& where) {
  return bundle_error(message, where,
                      std::string("pip install onnxruntime, and put its ") + kName +
                          " beside the runner, or name it in " + kVariable + "; or compile with `target: tvm`");
}

void* open_library() {
  const char* named = std::getenv(kVariable);
  const std::string path = named && *named ? named : beside();
  const char* const name = path.empty() ? "libonnxruntime.so.1" : path.c_str();
  if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  const char* reason = dlerror();
  if (path.empty()) throw missing("this bundle needs onnxruntime, which is not installed", "");
  throw missing(std::string("onnxruntime cannot be loaded: ") + (reason ? reason : "for no known reason"), path);
}

const Base& base() {
  static const Base* const found = [] {
    setenv("ORT_DISABLE_TELEMETRY", "1", 0);  // it counts its use unless it is told not to
    const auto get = reinterpret_cast<const Base* (*)()>(dlsym(open_library(), "OrtGetApiBase"));
    if (!get) throw missing("the library is not that of onnxruntime: it has no OrtGetApiBase", "");
    return get();
  }();
  return *found;
}

}  // namespace

const void* const* table() {
  static const void* const* const found = [] {
    if (const void* const* table = base().table(kTableVersion)) return table;
    throw missing("onnxruntime " + version() + " is too old: it takes 1.18", "");
  }();
  return found;
}

std::string version() { return base().version(); }

void check(Status* status) {
  if (!status) return;
  const Failure failure{get_error_code(status), get_error_message(status)};
  release_status(status);
  throw failure;
}

std::string Failure::text() const {
  static constexpr std::array kNames{"SUCCESS",           "FAIL",
                                     "INVALID_ARGUMENT",  "NO_SUCHFILE",
                                     "NO_MODEL",          "ENGINE_ERROR",
                                     "RUNTIME_EXCEPTION", "INVALID_PROTOBUF",
                                     "MODEL_LOADED",      "NOT_IMPLEMENTED",
                                     "INVALID_GRAPH",     "EP_FAIL"};
  const auto number = static_cast<std::size_t>(code);
  const char* name = number < kNames.size() ? kNames[number] : "GENERAL ERROR";
  return "[ONNXRuntimeError] : " + std::to_string(code) + " : " + name + " : " + message;
}

}  // namespace partc::engines::ort
