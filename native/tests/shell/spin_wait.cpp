/** spin_wait LOOK_US: rounds of 2 ms of computing and a wait of 2 ms for a message, in a world where a look that finds
nothing takes LOOK_US. A line for each round: how long the wait was beyond the 2 ms, in microseconds, and how many looks it
took; sleeping takes 100 us longer than it was to. */
#include "shell/spin_wait.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace partc::shell;

int main(int count, char** words) {
  if (count != 2) return 2;
  const double look_s = std::atof(words[1]) / 1e6, wakes_s = 1e-4, waited_s = 2e-3;
  double now = 0.0, due = 0.0;
  int looks = 0;
  const auto poll = [&](std::optional<double> timeout_s) -> std::vector<Event> {
    if (timeout_s && *timeout_s == 0.0) {
      ++looks;
      const bool is_there = now >= due;
      now += is_there ? 0.0 : look_s;
      return is_there ? std::vector<Event>{Input{0}} : std::vector<Event>{};
    }
    const double end = timeout_s ? std::min(due, now + *timeout_s) : due;
    now = std::max(now, end) + wakes_s;
    return now >= due ? std::vector<Event>{Input{0}} : std::vector<Event>{};
  };
  SpinWait waits(poll, [&] { return now; });
  for (int round = 0; round < 110; ++round) {
    waits.begin();
    due = now + waited_s;
    looks = 0;
    while (waits.wait({}).empty()) continue;
    std::printf("%.0f %d\n", 1e6 * (now - due), looks);
    waits.end();
    now += 2e-3;
  }
}
