/** Being awake when a message comes.

A core that nobody uses falls asleep, and a virtual machine gives it away: a message that wakes it takes 0.1 ms longer.
But from token to token a device waits about as long as it did before. So it sleeps through the first part of a wait only,
and spends the rest looking. It looks for no longer than a wait usually takes, not at all while there is no request, and
not for a while once a look has shown that somebody else wants the core: then sleeping is what brings messages sooner.
*/
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
  using Clock = std::function<double()>;

  /** Nothing was waited for yet; `poll` sleeps until something happens, for so many seconds at most. */
  SpinWait(Poll poll, Clock clock) : poll_(std::move(poll)), clock_(std::move(clock)), began_(clock_()) {}

  /** There is nothing left to do. */
  void begin() { began_ = clock_(); }
  /** There is something to do again. */
  void end();
  /** The events that `poll` finds; perhaps none before the time is over. */
  std::vector<Event> wait(std::optional<double> timeout_s);

 private:
  Poll poll_;
  Clock clock_;
  double began_;
  double usual_s_ = 0.0;
  int sleeps_ = 0;  // waits that are to be slept through
};

}  // namespace partc::shell
