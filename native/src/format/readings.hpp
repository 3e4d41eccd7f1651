// Which of a device's limits its sensors have reached (partc/format/readings.py).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "format/build.gen.hpp"
#include "format/messages.gen.hpp"

namespace partc {

/// A limit whose reading is missing is not reached.
std::vector<std::string> reached(const std::optional<build::Limits>& limits, const messages::Readings& readings);

}  // namespace partc
