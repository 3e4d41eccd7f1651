#include "engines/processor.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "errors.hpp"
#include "format/text.hpp"

namespace partc::engines {
namespace {

#if defined(__aarch64__)
constexpr const char* kHere = "aarch64";
constexpr const char* kFeatures = "Features";
constexpr const char* kLeast = "write `features: [neon]` in the `options` of";
#else
constexpr const char* kHere = "x86_64";
constexpr const char* kFeatures = "flags";
constexpr const char* kLeast = "leave `features` and `arch: host` out of";
#endif

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string architecture() { return kHere; }

std::set<std::string> processor_features() {
  std::istringstream lines(text_of("/proc/cpuinfo"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kFeatures)) continue;
    std::istringstream words(line.substr(std::min(line.find(':'), line.size() - 1) + 1));
    std::set<std::string> found;
    for (std::string word; words >> word;) found.insert(word);
    return found;
  }
  return {};
}

std::size_t usable_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return 1;
  std::set<std::string> cores;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (!CPU_ISSET(number, &allowed)) continue;
    const std::string name = std::to_string(number);
    // A text that all threads of a core share.
    std::string core = text_of("/sys/devices/system/cpu/cpu" + name + "/topology/thread_siblings_list");
    cores.insert(core.empty() ? name : core);
  }
  return std::max<std::size_t>(cores.size(), 1);
}

std::size_t usual_threads() {
  std::string asked = std::getenv("OMP_NUM_THREADS") ? std::getenv("OMP_NUM_THREADS") : "";
  asked = asked.substr(0, asked.find(','));
  asked.erase(0, asked.find_first_not_of(" \t\n"));
  asked.erase(asked.find_last_not_of(" \t\n") + 1);
  const bool is_number = !asked.empty() && asked.find_first_not_of("0123456789") == std::string::npos;
  const std::size_t threads = is_number ? std::strtoull(asked.c_str(), nullptr, 10) : 0;
  return threads ? std::min(threads, kMostThreads) : usable_cores();
}

void check_processor(const build::LibraryOptions& options, const std::string& path) {
  if (options.platform.substr(0, options.platform.find('-')) != kHere) {
    throw bundle_error("the library is for " + options.platform + ", and this machine is " + kHere, path,
                       std::string("copy the folder to the device that it is for, or compile with `arch: ") + kHere +
                           "`");
  }
  const std::set<std::string> features = processor_features();
  std::vector<std::string> missing;
  for (const std::string& name : options.needs)
    if (!features.empty() && !features.contains(name)) missing.push_back(name);
  if (missing.empty()) return;
  throw bundle_error("the library uses " + joined(missing, ", ") + ", which this processor has not", path,
                     std::string(kLeast) + " the device in devices.yaml, or `target: ort`, and compile again");
}

}  // namespace partc::engines
