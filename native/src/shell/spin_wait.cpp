#include "shell/spin_wait.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>

namespace partc::shell {
namespace {

constexpr double kAsleep = 0.7;     // the part of a usual wait that is slept through: waits differ by a tenth or two
constexpr double kLookedFor = 1.5;  // after how many usual waits it goes to sleep again
constexpr double kLongestS = 0.01;  // longer waits are slept through: what could be won is a small part of them
constexpr double kLostS = 0.0005;   // a look takes some microseconds; one that takes so long gave the core to somebody
constexpr int kSleeps = 100;        // waits behind such a look

}  // namespace

void SpinWait::end() {
  const double waited = clock_() - began_;
  usual_s_ = waited < kLongestS ? waited : 0.0;
}

std::vector<Event> SpinWait::wait(std::optional<double> timeout_s) {
  double now = clock_();
  const double wake = began_ + kAsleep * usual_s_, doze = began_ + kLookedFor * usual_s_;
  if (sleeps_ > 0 || now >= doze) {
    sleeps_ = std::max(0, sleeps_ - 1);
    return poll_(timeout_s);
  }
  const double end = timeout_s ? std::min(doze, now + *timeout_s) : doze;
  // Polling knows milliseconds.
  const double asleep_s = std::floor(1000 * (std::min(wake, end) - now)) / 1000;
  std::vector<Event> found;
  if (asleep_s > 0) found = poll_(asleep_s);
  for (now = clock_(); found.empty() && now < end && sleeps_ == 0;) {
    found = poll_(0.0);
    if (found.empty()) sched_yield();
    const double before = std::exchange(now, clock_());
    if (now - before > kLostS) sleeps_ = kSleeps;
  }
  return found;
}

}  // namespace partc::shell
