// Requests at the source: taken from clients, queued, opened in a free slot, stepped, watched, answered.
//
// The table of a job's states is in partc/runtime/core/source/schedule.py.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/actions.hpp"
#include "core/source/job.hpp"
#include "core/source/orphans.hpp"
#include "core/links/outages.hpp"
#include "core/source/patience.hpp"
#include "core/source/sharing.hpp"
#include "core/source/slots.hpp"

namespace partc::core {

class Schedule {
 public:
  Schedule(RolePtr role, double floor_s, double rejoin_s, double linger_s, std::uint64_t next_number,
           double incomplete_since);

  RolePtr role;
  /// Number of the next request; numbers grow over restarts of the source as well.
  std::uint64_t next_number;
  double incomplete_since;
  /// Devices that are not in the ring; nothing is opened while there are any.
  Names absent;
  /// Whether requests stop at their step boundaries.
  bool held = false;
  Patience patience;
  Sharing sharing;

  // -- the ring

  /// A device knows requests of numbers below `next_request`.
  void seen(std::uint64_t next_request) { next_number = std::max(next_number, next_request); }
  /// Another placement is in force.
  void adopt(RolePtr of_role);
  /// A device lost its rows: no prefix can be reused.
  void forget_rows() { slots_.forget(); }
  /// Devices were lost for which there are no others: requests wait for them.
  void lost(const Names& gone, double now, Actions& out);
  /// The links that are down between devices that are both there.
  void cut(const std::vector<LinkNames>& links, double now);
  /// Whatever was lost is there again, or is replaced.
  void whole(double now);
  /// Devices were lost; a request that this happens to twice with the same one may be the cause, and ends.
  void count_losses(const Names& devices, double now, Actions& out);

  // -- changes of placement

  /// Whether every request stands at a step boundary.
  bool is_at_rest() const;
  /// Requests below this number are over.
  std::uint64_t first_number() const;
  /// Requests stop at their step boundaries, or where they are.
  void hold(bool at_once);
  /// The steps that the running requests have reached.
  std::vector<messages::Reached> reached() const;
  /// Every running request goes on from its watermark; and how many steps that repeats.
  std::pair<std::vector<messages::Resumption>, std::uint64_t> rewind(
      const std::function<std::uint64_t(std::uint64_t, std::uint64_t)>& watermark);
  /// Requests go on from where they stand.
  void go_on(double now, Actions& out);
  /// End what a failure concerns; failures of requests that are over are ignored.
  void fail(const Failed& failed, double now, Actions& out);

  // -- clients

  void submit(const Origin& origin, const messages::Submit& submit, const Frames& frames, double now, Actions& out);
  /// A client is back: it gets what it missed.
  void resume(const Origin& origin, const messages::Resume& resume, Actions& out);
  /// A client's connection is broken: its requests wait for it for a while.
  void away(const Origin& origin, double now, Actions& out);
  void cancel(const Origin& origin, const messages::Cancel& cancel, double now, Actions& out);

  // -- steps

  /// Open waiting requests while there are slots and a complete ring.
  void pump(double now, Actions& out);
  /// A request made progress.
  void moved(std::uint64_t number, double now);
  /// A step has brought its values.
  void emitted(const Step& step, const Tensors& values, double now, Actions& out);
  /// Tell clients of new tokens, when the next step is on its way to the other devices.
  void tell(Actions& out);
  /// A device's timings of a request that has ended.
  void reported(const messages::Timings& message, const Frames& frames, double now, Actions& out);
  /// Tensors that a device received, for the client.
  void crossed(const messages::Crossed& message, const Frames& frames, Actions& out);

  // -- liveness

  /// When `look` must be called.
  Due due() const { return look_again_; }
  /// End what waits for too long.
  void look(double now, Actions& out);
  /// Whether `look` looks at anything.
  bool looks(double now) const { return !look_again_ || now >= *look_again_; }
  /// All requests that wait, run, or are reported on.
  std::vector<JobPtr> jobs() const;

 private:
  using Jobs = Map<std::uint64_t, JobPtr>;

  static std::vector<JobPtr> all(const Jobs& jobs);
  void look_at_running(double now, Actions& out);
  void give_up(double now, Actions& out);
  void begin(const JobPtr& job, double now, Actions& out);
  void let_go(Actions& out);
  void take_values(const Step& step, const Tensors& values, double now, Actions& out);
  void take(Job& job, const Tensor& tokens, const Likelies& likely, Actions& out);
  void finish(const JobPtr& job, double now, Actions& out);
  void release(const Job& job);
  void answer(const JobPtr& job, double now, Actions& out);
  void end(const JobPtr& job, Ending ending, double now, Actions& out);
  void fail(const JobPtr& job, const Error& error, double now, Actions& out);
  double most_awaited(const Job& job) const;
  void ask(double now, Actions& out);
  Due soonest_deadline(double now) const;

  /// The shortest patience with a silent ring, seconds.
  double floor_s_;
  /// The time that requests wait for a lost device, seconds; 0: a loss that cannot be made good ends them at once.
  double rejoin_s_;
  /// The time that a request waits for its client to come back, seconds.
  double linger_s_;
  std::deque<JobPtr> waiting_;
  Jobs running_, reporting_;
  Orphans orphans_;
  Rejoin rejoin_;
  Cut cut_;
  /// Tokens that clients are to be told of.
  std::vector<Send> untold_;
  Slots slots_;
  double asked_at_ = 0.0;
  Due look_again_ = 0.0;
};

}  // namespace partc::core
