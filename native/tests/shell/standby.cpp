/** standby UNSENT: how often the loop is worked while its owner computes for 100 ms; in the first UNSENT of these turns a
message is still on its way out. A line: the turns, and the milliseconds until the last turn of those. */
#include "shell/standby.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "shell/clock.hpp"

using namespace partc::shell;

int main(int count, char** words) {
  if (count != 2) return 2;
  const int unsent = std::atoi(words[1]);
  int turns = 0;
  double began = 0.0, sent = 0.0;
  Standby standby(
      [&] {
        if (++turns == unsent) sent = monotonic() - began;
      },
      [&] { return turns < unsent; });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // asleep for a step without messages
  began = monotonic();
  standby.away([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return 0;
  });
  std::printf("%d %.0f\n", turns, 1e3 * sent);
}
