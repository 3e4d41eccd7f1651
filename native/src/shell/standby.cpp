#include "shell/standby.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "shell/clock.hpp"

namespace partc::shell {
namespace {

constexpr double kAwayS = 0.018;    // the time for which the loop goes without anybody: the promise is 20 ms
constexpr double kUnsentS = 0.001;  // the same while a message leaves, so that its link does not stand idle
constexpr double kHere = -1.0;

}  // namespace

Standby::Standby(std::function<void()> turn, std::function<bool()> hurries)
    : turn_(std::move(turn)), hurries_(std::move(hurries)), pause_(kAwayS), away_since_(kHere), thread_([this] {
        look_after();
      }) {}

Standby::~Standby() {
  ended_ = true;
  busy_ = true;
  busy_.notify_one();
  thread_.join();
}

void Standby::leave() {
  away_since_ = monotonic();
  if (!busy_.exchange(true)) busy_.notify_one();
  if (hurries_()) {
    pause_ = kUnsentS;
    hurry_.release();
  }
  owned_.release();
}

void Standby::take_back() {
  owned_.acquire();
  away_since_ = kHere;
  pause_ = kAwayS;
}

void Standby::look_after() {
  double worked = 0.0;
  while (!ended_) {
    busy_.wait(false);
    const double since = away_since_;
    const double alone = since == kHere ? monotonic() : std::max(since, worked);
    const double wait = std::max(0.0, alone + pause_ - monotonic());
    if (hurry_.try_acquire_for(std::chrono::duration<double>(wait))) continue;
    // Steps that were over before cost no more than waking up here now and then.
    if (since == kHere || since != away_since_ || !owned_.try_acquire()) continue;
    try {
      if (away_since_ != kHere && !failure_) {
        turn_();
        pause_ = hurries_() ? kUnsentS : kAwayS;
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
    owned_.release();
    worked = monotonic();
  }
}

}  // namespace partc::shell
