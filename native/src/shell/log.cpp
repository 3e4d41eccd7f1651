#include "shell/log.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "errors.hpp"
#include "format/json.hpp"
#include "format/logs.gen.hpp"
#include "format/text.hpp"

namespace partc::shell {
namespace {

/** Characters of a field; others may have made its text. */
constexpr std::size_t LONGEST_VALUE = 500;

const LogEvent& event_of(std::string_view name) {
  const auto* found = std::ranges::find(LOG_EVENTS, name, &LogEvent::name);
  if (found == LOG_EVENTS.end()) throw internal_error("no event of a log: " + std::string(name));
  return *found;
}

std::string now_text() {
  using namespace std::chrono;
  const auto now = time_point_cast<milliseconds>(system_clock::now());
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[40];
  const int milli = static_cast<int>(now.time_since_epoch().count() % 1000);
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + length, sizeof text - length, ".%03dZ", milli);
  return text;
}

std::string number_of(double number) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3f", number);
  return text;
}

std::string shown(const Value& value) {
  if (const auto* text = value.as<std::string>()) return one_line(*text, LONGEST_VALUE);
  if (const auto* number = value.as<double>()) return number_of(*number);
  return compact_json(value);
}

/** The sentence of an event, with the values of its fields. */
std::string sentence(const LogEvent& event, const Object& fields) {
  std::string found;
  for (std::size_t at = 0; at < event.sentence.size(); ++at) {
    const std::size_t end = event.sentence.find('}', at);
    const Value* value =
        event.sentence[at] == '{' ? fields.find(std::string(event.sentence.substr(at + 1, end - at - 1))) : nullptr;
    if (value != nullptr) {
      found += shown(*value);
      at = end;
    } else {
      found += event.sentence[at];
    }
  }
  return found;
}

std::string member(std::string_view key, const Value& value) {
  const auto* text = value.as<std::string>();
  const auto* number = value.as<double>();
  const Value printed = text == nullptr ? value : Value{one_line(*text, LONGEST_VALUE)};
  const std::string written = number == nullptr ? compact_json(printed) : number_of(*number);
  return compact_json({std::string(key)}) + ":" + written;
}

}  // namespace

std::string log_line(bool is_json, const std::string& device, std::string_view name, const Object& fields,
                     const std::string& time) {
  const LogEvent& event = event_of(name);
  const std::string level(LOG_LEVELS.at(event.level));
  if (!is_json) return time + " " + level + " " + std::string(name) + " " + device + ": " + sentence(event, fields);
  std::string line = "{" + member("time", {time}) + "," + member("level", {level}) + "," +
                     member("event", {std::string(name)}) + "," + member("device", {device});
  for (const auto& [key, value] : fields) line += "," + member(key, value);
  return line + "}";
}

void write_log(const LogSettings& settings, const std::string& device, std::string_view event, const Object& fields) {
  if (event_of(event).level < settings.level) return;
  const std::string line = log_line(settings.is_json, device, event, fields, now_text()) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace partc::shell
