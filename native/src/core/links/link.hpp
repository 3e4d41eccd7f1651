// A link between two devices: every frame once and in order, whatever the network loses, repeats or reorders.
//
// partc/runtime/core/links/link.py says what epochs and sessions keep out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "format/complaints.hpp"
#include "format/map.hpp"

namespace partc::core {

/// The sending end: numbers frames and keeps them until they are acknowledged.
template <class T>
class Sender {
 public:
  Sender(std::uint64_t capacity, std::uint64_t of_session, std::uint64_t of_epoch)
      : session(of_session), epoch(of_epoch), capacity_(capacity) {}

  /// Forget all frames and count from 0 again, in a new session or epoch.
  void restart(std::uint64_t new_session, std::uint64_t new_epoch, std::optional<std::uint64_t> capacity = {}) {
    capacity_ = capacity.value_or(capacity_);
    session = new_session;
    epoch = new_epoch;
    first_ = 0;
    frames_.clear();
  }
  /// The number that the next frame will have.
  std::uint64_t next_seq() const { return first_ + frames_.size(); }
  /// Keep a frame that is about to be sent. Throws Error: the receiver has stopped acknowledging.
  void push(T frame) {
    if (frames_.size() >= capacity_) {
      throw run_error(std::to_string(capacity_) + " messages were sent without an acknowledgement", "", "", "stalled");
    }
    frames_.push_back(std::move(frame));
  }
  /// The receiver has everything below `next`. Throws Error: it acknowledges what was never sent.
  void acknowledge(std::uint64_t of_session, std::uint64_t of_epoch, std::uint64_t next) {
    if (of_session != session || of_epoch != epoch) return;
    if (next > next_seq()) {
      throw refused("message " + std::to_string(next - 1) + " is acknowledged, but was never sent");
    }
    if (next <= first_) return;
    frames_.erase(frames_.begin(), frames_.begin() + static_cast<std::ptrdiff_t>(next - first_));
    first_ = next;
  }
  /// Whether a receiver that awaits `next` can be sent all that it is missing.
  bool can_resume(std::uint64_t next) const { return first_ <= next && next <= next_seq(); }
  /// The frames to send again after a break.
  const std::vector<T>& unacknowledged() const { return frames_; }

  std::uint64_t session;
  std::uint64_t epoch;

 private:
  std::uint64_t capacity_;
  std::uint64_t first_ = 0;
  std::vector<T> frames_;
};

/// The receiving end: hands on every frame once, in order.
template <class T>
class Receiver {
 public:
  Receiver(std::uint64_t of_epoch, std::uint64_t window) : epoch(of_epoch), window_(window) {}

  /// The sender begins a session; one that was in force before goes on where it was.
  void open(std::uint64_t of_session) {
    if (session == of_session) return;
    if (session) former_.set(*session, next_);
    if (former_.size() > MOST_FORMER) former_.erase(former_.begin()->first);
    const std::uint64_t* left_at = former_.find(of_session);
    next_ = left_at == nullptr ? 0 : *left_at;
    former_.erase(of_session);
    session = of_session;
    held_.clear();
    early_.clear();
  }
  /// A change to this epoch is prepared: its frames are kept until `restart`.
  void expect(std::uint64_t of_epoch, std::uint64_t window) {
    following_ = {of_epoch, window};
    early_.clear();
  }
  /// The epoch that is prepared is in force; the frames of it that may be handed on now, in order.
  std::vector<T> restart() {
    if (following_) {
      std::tie(epoch, window_) = *following_;
      next_ = 0;
      held_ = std::move(early_);
      following_.reset();
      early_.clear();
      former_ = {};
    }
    return in_order();
  }
  /// Take a frame; the frames that may be handed on now, in order. Throws Error: it lies beyond the window.
  std::vector<T> accept(std::uint64_t of_epoch, std::uint64_t of_session, std::uint64_t seq, T frame) {
    if (session != of_session) return {};
    if (following_ && of_epoch == following_->first) {
      keep(early_, 0, following_->second, seq, std::move(frame));
      return {};
    }
    if (of_epoch != epoch || seq < next_) return {};
    keep(held_, next_, window_, seq, std::move(frame));
    return in_order();
  }
  /// Everything below this number has been handed on.
  std::uint64_t acknowledgement() const { return next_; }

  std::optional<std::uint64_t> session;
  std::uint64_t epoch;

 private:
  static void keep(std::map<std::uint64_t, T>& frames, std::uint64_t first, std::uint64_t window, std::uint64_t seq,
                   T frame) {
    if (seq >= first + window) {
      throw refused("message " + std::to_string(seq) + " came while " + std::to_string(first) +
                    " was awaited: out of the window");
    }
    frames.try_emplace(seq, std::move(frame));
  }
  std::vector<T> in_order() {
    std::vector<T> found;
    for (auto at = held_.find(next_); at != held_.end(); at = held_.find(++next_)) {
      found.push_back(std::move(at->second));
      held_.erase(at);
    }
    return found;
  }

  std::uint64_t window_;
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, T> held_;
  /// Epoch that is prepared, and its window.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> following_;
  /// Frames of that epoch.
  std::map<std::uint64_t, T> early_;
  static constexpr std::size_t MOST_FORMER = 64;
  /// Session that another one followed → the number that it waits for, in this epoch; the last ones.
  Map<std::uint64_t, std::uint64_t> former_;
};

}  // namespace partc::core
