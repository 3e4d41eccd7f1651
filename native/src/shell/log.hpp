/** Lines of a log on standard error: the events of `format/logs.gen.hpp`, as text or as JSON
(`partc/runtime/shell/log.py`). */
#pragma once

#include <string>
#include <string_view>

#include "format/value.hpp"

namespace partc::shell {

/** The log that is wanted. */
struct LogSettings {
  /** The least level that is written, an index in LOG_LEVELS; the last one: nothing is. */
  std::size_t level = 1;
  bool is_json = false;
};

/** Write an event of a device, if its level is wanted. */
void write_log(const LogSettings& settings, const std::string& device, std::string_view event, const Object& fields);

/** The line of an event, without its end; `time` as ISO 8601. */
std::string log_line(bool is_json, const std::string& device, std::string_view event, const Object& fields,
                     const std::string& time);

}  // namespace partc::shell
