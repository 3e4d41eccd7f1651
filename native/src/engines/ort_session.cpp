#include "engines/ort_session.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "engines/huge_pages.hpp"
#include "engines/processor.hpp"
#include "errors.hpp"
#include "format/complaints.hpp"
#include "format/json.hpp"

namespace partc::engines {
namespace {

constexpr int kErrors = 3;  // messages of this severity are written, and those of higher ones
constexpr int kArenaAllocator = 1, kDefaultMemory = 0;
/** Room for what a session has beside weights. */
constexpr std::uint64_t kSmallThingsBytes = 32 << 20;
/** The first onnxruntime of which we know that it uses files in memory where they lie; older ones copy them. */
constexpr std::pair kReadsLentFiles{1, 31};
/** The arena's first region; its own notes take a 32nd of that. */
constexpr std::size_t kRegionBytes = 128 << 20;
/** A free block that is larger than a tensor by this much is split. */
constexpr std::size_t kSplitBytes = 1 << 20;
/** Weights from which on all this pays. */
constexpr std::uint64_t kLargeBytes = 8 << 20;

/** What all sessions of this process share; the first one tells how its arena begins. */
ort::Env* environment(std::size_t arena_bytes) {
  static ort::Env* const shared = [&] {
    ort::Env* made = nullptr;
    ort::create_env(kErrors, "partc", &made);
    const auto place =
        ort::made<ort::MemoryInfoPtr>(ort::create_memory_info, "Cpu", kArenaAllocator, 0, kDefaultMemory);
    const std::array keys{"initial_chunk_size_bytes", "max_dead_bytes_per_chunk"};
    const std::array values{arena_bytes, kSplitBytes};
    const auto arena = ort::made<ort::ArenaCfgPtr>(ort::create_arena_cfg, keys.data(), values.data(), keys.size());
    ort::create_and_register_allocator(made, place.get(), arena.get());
    return made;
  }();
  return shared;
}

bool reads_lent_files() {
  char* rest = nullptr;
  const std::string version = ort::version();
  const auto major = static_cast<int>(std::strtol(version.c_str(), &rest, 10));
  const auto minor = static_cast<int>(*rest ? std::strtol(rest + 1, nullptr, 10) : 0);
  return std::pair(major, minor) >= kReadsLentFiles;
}

std::vector<std::string> paths_of(const std::string& folder, const build::Submodule& module) {
  std::vector<std::string> paths;
  for (const std::string& name : module.weights) paths.push_back(folder + "/" + name);
  return paths;
}

/** The bytes of all files together. */
std::uint64_t stored_bytes(std::vector<std::string> paths) {
  std::ranges::sort(paths);
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  std::uint64_t bytes = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    bytes += std::filesystem::file_size(path, error);
    if (!error) continue;
    throw bundle_error("[Errno " + std::to_string(error.value()) + "] " + error.message() + ": '" + path + "'");
  }
  return bytes;
}

/** Let the session read weights where this process has mapped them. */
void lend_files(ort::SessionOptions* options, const std::string& folder, const build::Submodule& module,
                const MappedFiles& files) {
  if (files.of().empty()) return;
  // ONNX names files as seen from where the graph lies.
  const std::filesystem::path place = std::filesystem::path("/" + module.file).parent_path();
  std::vector<std::string> names;
  std::vector<const char*> texts;
  std::vector<char*> contents;
  std::vector<std::size_t> sizes;
  for (const std::string& name : module.weights)
    names.push_back(std::filesystem::path("/" + name).lexically_relative(place).string());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto content = files.of().at(folder + "/" + module.weights[i]);
    texts.push_back(names[i].c_str());
    contents.push_back(reinterpret_cast<char*>(content.data()));
    sizes.push_back(content.size());
  }
  ort::add_external_initializers_from_files_in_memory(options, texts.data(), contents.data(), sizes.data(),
                                                      sizes.size());
  ort::add_session_config_entry(options, "session.use_external_initializer_file_buffers_directly", "1");
}

/** A value of `options` in devices.yaml as Python's `str` has it. */
std::string text_of(const Value& value) {
  if (const auto* text = value.as<std::string>()) return *text;
  if (const auto* truth = value.as<bool>()) return *truth ? "True" : "False";
  return value.is_null() ? "None" : compact_json(value);
}

ort::SessionOptionsPtr options_of(const build::EngineSpec& engine, const std::string& folder,
                                  const build::Submodule& module, const MappedFiles& files) {
  auto options = ort::made<ort::SessionOptionsPtr>(ort::create_session_options);
  ort::SessionOptions* const held = options.get();
  // Left to itself, onnxruntime takes cores that this process may not use, and binds its threads to them.
  ort::set_intra_op_num_threads(held, static_cast<int>(engine.threads ? engine.threads : usable_cores()));
  ort::set_session_log_severity_level(held, kErrors);
  // Threads spin while a step is computed, but not until the next one comes.
  ort::add_session_config_entry(held, "session.force_spinning_stop", "1");
  ort::add_session_config_entry(held, "session.use_env_allocators", "1");
  ort::disable_mem_pattern(held);
  lend_files(held, folder, module, files);
  for (const auto& [key, value] : engine.options)
    ort::add_session_config_entry(held, key.c_str(), text_of(value).c_str());
  return options;
}

}  // namespace

void check_provider(const build::EngineSpec& engine) {
  ort::table();
  if (engine.provider == "cpu") return;
  throw bundle_error("the native runner has no provider '" + engine.provider + "'", "engine.provider",
                     "set `runner: python` for this device, or compile for the provider cpu");
}

Session load_session(const build::EngineSpec& engine, const std::string& folder, const build::Submodule& module) {
  const std::string path = folder + "/" + module.file;
  Session session;
  std::uint64_t stored = 0;
  try {
    const std::vector<std::string> paths = paths_of(folder, module);
    if (reads_lent_files()) session.files = MappedFiles(paths);
    stored = stored_bytes(paths);
  } catch (const Error& error) {
    throw recompile("cannot map the weights: " + error.message, folder);
  }
  try {
    ort::Env* const shared = environment(stored >= kLargeBytes ? kRegionBytes : kSplitBytes);
    const auto options = options_of(engine, folder, module, session.files);
    // MatMulNBits packs 4 bits each and a scale for 32 of them into 6/5 of that, all others into less.
    const InHugePages large(stored * 6 / 5 + kSmallThingsBytes);
    const ReleasedMeanwhile released(session.files);
    session.inner = ort::made<ort::SessionPtr>(ort::create_session, shared, path.c_str(), options.get());
  } catch (const ort::Failure& failure) {
    throw recompile("onnxruntime cannot load it: " + failure.text(), path);
  }
  give_back();
  release_mapped(folder);
  return session;
}

}  // namespace partc::engines
