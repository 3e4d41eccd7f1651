/** The clock of a runner. */
#pragma once

#include <chrono>

namespace partc::shell {

/** Seconds since some time in the past, never less than before. */
inline double monotonic() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace partc::shell
