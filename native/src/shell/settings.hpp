/** The start of a runner: its options, and the way to ask it to stop (`partc/runtime/shell/settings.py`). */
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/liveness.hpp"
#include "shell/log.hpp"

namespace partc::shell {

/** The options of a runner. */
struct Settings {
  /** The folder of one device. */
  std::string bundle;
  /** HOST:PORT; empty takes the address in placement.json. */
  std::string listen;
  /** HOST:PORT of other devices, over those in placement.json. */
  std::map<std::string, std::string> peers;
  /** HOST, or HOST:PORT, at which the others reach this device; empty: where it listens. */
  std::string advertise;
  /** Neither encrypt nor authenticate; loopback addresses only. */
  bool insecure = false;
  /** The shortest time without progress after which a peer counts as gone. */
  double patience_s = core::LEAST_PATIENCE_S;
  /** The time that requests wait for a device that is lost. */
  double rejoin_s = core::REJOIN_S;
  /** The time that a request goes on whose client is gone. */
  double linger_s = core::LINGER_S;
  /** Sleep through every wait (`spin_wait.hpp`). */
  bool frugal = false;
  /** Take the peers from standard input, tell progress on standard output as JSON, end with the input. */
  bool stdio = false;
  /** What is written to standard error of what happens. */
  LogSettings log;
};

/** A file that becomes readable at SIGTERM or SIGINT, which otherwise do nothing from here on.

To be made before other threads begin, which then do not take these signals either.
*/
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace partc::shell
