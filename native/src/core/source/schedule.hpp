// Requests at the source: taken from clients, queued, opened in a free slot, stepped, watched, answered
// (…/core/source/schedule.py).
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "core/actions.hpp"
#include "core/source/clients.hpp"
#include "core/source/deadlines.hpp"
#include "core/source/guessed_steps.hpp"
#include "core/source/queue.hpp"
#include "core/source/sharing.hpp"
#include "core/start.hpp"

namespace partc::core {

/// All requests of a ring.
class Schedule {
 public:
  /// The schedule of a source that starts `now`.
  Schedule(RolePtr of_role, const Start& start, double now);

  RolePtr role;
  Queue queue;
  Deadlines deadlines;
  Clients clients;
  Sharing sharing;
  GuessedSteps guessed;
  /// Devices that are not in the ring; nothing is opened while there are any.
  Names absent;
  /// Whether requests stop at their step boundaries.
  bool held = false;

  // -- the ring

  /// Another placement is in force.
  void adopt(RolePtr of_role);
  /// Devices were lost for which there are no others: requests wait for them.
  void devices_lost(const Names& gone, double now, Actions& out);
  /// Whatever was lost is there again, or is replaced.
  void outage_over(double now);
  /// Devices were lost; a request that this happens to twice with the same one may be the cause, and ends.
  void count_losses(const Names& devices, double now, Actions& out);

  // -- changes of placement

  /// Whether every request stands at a step boundary.
  bool is_at_rest() const { return queue.stepping().empty(); }
  /// Requests below this number are over.
  std::uint64_t first_number() const;
  /// Requests stop at their step boundaries, or where they are.
  void hold(bool at_once);
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
  void client_disconnected(const Origin& origin, double now, Actions& out);
  void cancel(const Origin& origin, const messages::Cancel& cancel, double now, Actions& out);

  // -- steps

  /// Open waiting requests while there are slots and a complete ring.
  void open_waiting(double now, Actions& out);
  /// Begin steps with guessed tokens, where there is room; none while requests stop.
  void guess(double now, Actions& out);
  /// A request made progress.
  void moved(std::uint64_t number, double now);
  /// A step has brought its values.
  void emitted(const Step& step, const Tensors& values, double now, Actions& out);
  /// A device's timings of a request that has ended.
  void reported(const messages::Timings& message, const Frames& frames, double now, Actions& out);
  /// Tensors that a device received, for the client.
  void crossed(const messages::Crossed& message, const Frames& frames, Actions& out);
  /// End what waits for too long.
  void check_deadlines(double now, Actions& out);

 private:
  void begin(const JobPtr& job, double now, Actions& out);
  void begin_shared(double now, Actions& out);
  bool is_void(const Step& step) const;
  void let_go(Actions& out);
  void take_values(const Step& step, const Tensors& values, double now, Actions& out);
  void take(Job& job, const Tensor& tokens, const Likelies& likely, Actions& out);
  void finish(const JobPtr& job, double now, Actions& out);
  void answer(const JobPtr& job, double now, Actions& out);
  void fail(const JobPtr& job, const Error& error, double now, Actions& out);
};

}  // namespace partc::core
