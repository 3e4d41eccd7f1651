// All requests of a ring, by their state, and the slots of those that run (…/core/source/queue.py).
#pragma once

#include <deque>
#include <vector>

#include "core/source/job.hpp"
#include "core/source/slots.hpp"

namespace partc::core {

/// All requests that are not over.
class Queue {
 public:
  /// `slots`: requests that may run at once. `first_number`: of the first request; numbers grow over restarts of the
  /// source as well.
  Queue(std::uint64_t slots, std::uint64_t first_number)
      : next_number(first_number), most_told_(first_number + kMostAhead), slots_(slots) {}

  /// Number of the next request.
  std::uint64_t next_number;

  /// Those that wait, run and report.
  std::vector<JobPtr> all() const;
  /// Requests without a slot, in the order in which they came.
  std::vector<JobPtr> waiting() const { return {waiting_.begin(), waiting_.end()}; }
  /// Requests with a slot, in the order in which they opened.
  std::vector<JobPtr> running() const { return list(running_); }
  /// Requests whose devices report.
  std::vector<JobPtr> reporting() const { return list(reporting_); }
  /// Requests that have a step under way.
  std::vector<JobPtr> stepping() const;
  /// The steps that the running requests have reached.
  std::vector<messages::Reached> reached() const;
  /// Whether a request waits, and a slot is free for it.
  bool has_next() const { return !waiting_.empty() && slots_.any_free(); }
  /// The running request of a number, the reporting one; null: there is none.
  JobPtr runs(std::uint64_t number) const { return find(running_, number); }
  JobPtr reports(std::uint64_t number) const { return find(reporting_, number); }

  /// A device knows requests of numbers below `number`.
  void raise_next_number(std::uint64_t number) {
    if (number <= most_told_) next_number = std::max(next_number, number);
  }
  /// Throws Error: too many wait already.
  void check_room() const;
  /// A request waits for a slot.
  void put(JobPtr job) { waiting_.push_back(std::move(job)); }
  /// The next request gets a number and a slot.
  JobPtr open(const Role& role);
  /// All tokens of a request are out: its slot is free.
  void report(const JobPtr& job);
  /// A request is over; others may compute its row still (`keeps_slot`): then `free` follows.
  void end(const JobPtr& job, bool keeps_slot = false);
  /// The slot of a request that is over is free, without rows that others may use.
  void free(const Job& job) { slots_.give(job.slot, *job.number, {}); }
  /// A device lost its rows: no prefix can be reused.
  void forget_rows() { slots_.forget(); }

 private:
  using Jobs = Map<std::uint64_t, JobPtr>;

  static std::vector<JobPtr> list(const Jobs& jobs);
  static JobPtr find(const Jobs& jobs, std::uint64_t number);
  void leave(const Job& job);

  /// No device knows a request that is further ahead (`partc/runtime/core/source/queue.py`).
  static constexpr std::uint64_t kMostAhead = std::uint64_t{1} << 48;
  std::uint64_t most_told_;
  Slots slots_;
  std::deque<JobPtr> waiting_;
  Jobs running_, reporting_;
};

}  // namespace partc::core
