/** Being awake when a message comes (`partc/runtime/shell/spin_wait.py` says why, and where the figures come from). */
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "shell/transport.hpp"

namespace partc::shell {

/** The length of a device's waits, and the decision for the next one. */
class SpinWait {
 public:
  using Poll = std::function<std::vector<Event>(std::optional<double>)>;

  /** Nothing was waited for yet; `poll` sleeps until something happens, for so many seconds at most. */
  SpinWait(Poll poll, double now) : poll_(std::move(poll)), began_(now) {}

  /** There is nothing left to do. */
  void begin();
  /** There is something to do again. */
  void end();
  /** The events that `poll` finds; perhaps none before the time is over. */
  std::vector<Event> wait(std::optional<double> timeout_s);

 private:
  Poll poll_;
  double began_;
  double usual_s_ = 0.0;
};

}  // namespace partc::shell
