#include "format/readings.hpp"

namespace partc {
namespace {

template <class T>
bool is_less(const std::optional<T>& low, const std::optional<T>& high) {
  return low && high && *low < *high;
}

}  // namespace

std::vector<std::string> reached(const std::optional<build::Limits>& limits, const messages::Readings& readings) {
  std::vector<std::string> found;
  if (!limits) return found;
  if (!readings.is_plugged.value_or(false) && is_less(readings.battery, limits->battery)) found.push_back("battery");
  if (is_less(limits->temperature_c, readings.temperature_c)) found.push_back("temperature");
  if (is_less(readings.memory_available_bytes, limits->memory_bytes)) found.push_back("memory");
  return found;
}

}  // namespace partc
