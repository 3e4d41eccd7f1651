/** Connections of strangers, as the log tells of them (`partc/runtime/shell/strangers.py`). */
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "format/facts.gen.hpp"

namespace partc::shell {

/** Count of the connections that the log has told of: the first at once, then all of a minute in one line. */
class Strangers {
 public:
  /** Seconds until more of them are to be told of; none: none are left to tell of. */
  std::optional<double> due_s(std::uint64_t count, double now) const {
    if (count == told_) return std::nullopt;
    return std::max(0.0, told_at_ + static_cast<double>(STRANGERS_EVERY_S) - now);
  }

  /** How many are to be told now, of so many in all; 0: none, or not yet. */
  std::uint64_t to_tell(std::uint64_t count, double now) {
    const std::uint64_t fresh = count - told_;
    if (!fresh || now - told_at_ < static_cast<double>(STRANGERS_EVERY_S)) return 0;
    told_ = count;
    told_at_ = now;
    return fresh;
  }

 private:
  std::uint64_t told_ = 0;
  double told_at_ = -std::numeric_limits<double>::infinity();
};

}  // namespace partc::shell
