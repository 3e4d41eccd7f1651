#include "shell/sensors.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>

namespace partc::shell {
namespace {

namespace fs = std::filesystem;

constexpr double kLeastC = -40, kMostC = 199;  // sensors that are switched off say -273 or worse

/** The content of a file without the spaces around it; empty where it cannot be read. */
std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const char* spaces = " \t\r\n";
  text.erase(text.find_last_not_of(spaces) + 1);
  text.erase(0, text.find_first_not_of(spaces));
  return text;
}

std::optional<double> number(const std::string& text) {
  char* end = nullptr;
  const double found = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(found)) return {};
  return found;
}

/** The number behind a word, up to the next space. */
std::optional<double> number_behind(const std::string& text, std::string_view word) {
  const std::size_t at = text.find(word);
  return at == std::string::npos ? std::nullopt : number(text.substr(at + word.size()));
}

/** Whole bytes of a number of units. */
std::optional<std::uint64_t> bytes(const std::optional<double>& units, double unit) {
  if (!units || *units < 0) return {};
  return static_cast<std::uint64_t>(*units * unit);
}

std::optional<std::uint64_t> resident(const std::string& statm) {
  const std::size_t space = statm.find(' ');
  if (space == std::string::npos) return {};
  return bytes(number(statm.substr(space)), static_cast<double>(sysconf(_SC_PAGESIZE)));
}

/** The share behind `avg10=` in the first line, `some`. */
std::optional<double> pressure(const std::string& text) {
  const auto percent = number_behind(text.substr(0, text.find('\n')), "avg10=");
  return percent ? std::optional(std::clamp(*percent / 100, 0.0, 1.0)) : std::nullopt;
}

/** The entries of a folder whose names begin so, sorted. */
std::vector<fs::path> entries(const fs::path& folder, std::string_view prefix = "") {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error))
    if (at->path().filename().string().starts_with(prefix)) found.push_back(at->path());
  std::ranges::sort(found);
  return found;
}

}  // namespace

Sensors::Sensors() {
  const char* given = std::getenv("PARTC_SYS");
  const fs::path root = given && *given ? given : "/";
  proc_ = root / "proc";
  for (const fs::path& zone : entries(root / "sys/class/thermal", "thermal_zone")) zones_.push_back(zone / "temp");
  for (const fs::path& supply : entries(root / "sys/class/power_supply")) {
    if (text_of(supply / "scope") == "Device") continue;  // a mouse or a headset has a battery as well
    if (text_of(supply / "type") == "Battery") {
      batteries_.push_back(supply);
    } else {
      mains_.push_back(supply / "online");
    }
  }
}

messages::Readings Sensors::read() const {
  return {
      .memory_available_bytes = bytes(number_behind(text_of(proc_ / "meminfo"), "MemAvailable:"), 1024),
      .memory_own_bytes = resident(text_of(proc_ / "self/statm")),
      .cpu_pressure = pressure(text_of(proc_ / "pressure/cpu")),
      .memory_pressure = pressure(text_of(proc_ / "pressure/memory")),
      .temperature_c = temperature(),
      .battery = charge(),
      .is_plugged = is_plugged(),
  };
}

/** That of the hottest zone. */
std::optional<double> Sensors::temperature() const {
  std::optional<double> hottest;
  for (const fs::path& zone : zones_) {
    const auto millidegrees = number(text_of(zone));
    if (!millidegrees) continue;
    const double degrees = *millidegrees / 1000, whole = std::nearbyint(degrees);
    if (kLeastC <= whole && whole <= kMostC) hottest = std::max(hottest.value_or(degrees), degrees);
  }
  return hottest;
}

/** The charge of all batteries together, as if they were of one size. */
std::optional<double> Sensors::charge() const {
  double sum = 0;
  int count = 0;
  for (const fs::path& battery : batteries_) {
    const auto percent = number(text_of(battery / "capacity"));
    if (!percent) continue;
    sum += std::clamp(*percent, 0.0, 100.0) / 100;
    ++count;
  }
  return count ? std::optional(sum / count) : std::nullopt;
}

std::optional<bool> Sensors::is_plugged() const {
  std::set<std::string> online, states;
  for (const fs::path& supply : mains_) online.insert(text_of(supply));
  for (const fs::path& battery : batteries_) states.insert(text_of(battery / "status"));
  if (online.contains("1") || states.contains("Charging") || states.contains("Full") || states.contains("Not charging"))
    return true;
  return online.contains("0") || states.contains("Discharging") ? std::optional(false) : std::nullopt;
}

}  // namespace partc::shell
