/** A second thread that works the loop while the first one computes (`partc/runtime/shell/standby.py` says why). */
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <semaphore>
#include <thread>

namespace partc::shell {

/** Works a loop while its owner is away; the two never work it at once. */
class Standby {
 public:
  /** Begin; `turn` does what there is to do, without waiting; `hurries` says whether a message is on its way out. */
  Standby(std::function<void()> turn, std::function<bool()> hurries);
  /** End the thread. */
  ~Standby();
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;

  /** Leave the loop to this thread while `work` is done; its result, once the loop is taken back.

  Throws what `work` throws, or what `turn` threw: the loop was not worked since then.
  */
  template <class Doing>
  auto away(Doing work) {
    struct Back {
      Standby& standby;
      ~Back() { standby.take_back(); }
    };
    leave();
    auto done = [&] {
      const Back back{*this};
      return work();
    }();
    if (failure_) std::rethrow_exception(failure_);
    return done;
  }
  /** Nothing will be computed for a while. */
  void rest() { busy_ = false; }

 private:
  void leave();
  void take_back();
  void look_after();

  std::function<void()> turn_;
  std::function<bool()> hurries_;
  std::binary_semaphore owned_{0};      // who holds it may work the loop
  std::counting_semaphore<> hurry_{0};  // shortens the sleep under way
  std::atomic<double> pause_;
  std::atomic<double> away_since_;  // below 0: the owner is here
  std::atomic<bool> busy_ = false;  // whether it may be needed at all, so that an idle device sleeps
  std::atomic<bool> ended_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace partc::shell
