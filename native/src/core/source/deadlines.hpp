// Deadlines of requests: with a step that does not end, with an outage, with reports, and with those that wait
// (…/core/source/deadlines.py).
#pragma once

#include <functional>
#include <variant>
#include <vector>

#include "core/links/outages.hpp"
#include "core/source/orphans.hpp"
#include "core/source/patience.hpp"
#include "core/source/queue.hpp"

namespace partc::core {

/// What becomes of a request that is late: it ends with an error, it is tried again in a change, or, where only reports
/// are missing, it is answered without them.
using Verdict = std::variant<Error, Stalled, std::monostate>;
/// Carries a verdict out, which may change the queue.
using Carry = std::function<void(const JobPtr&, const Verdict&)>;

/// How long what is waited for.
class Deadlines {
 public:
  /// `floor_s`: the shortest patience with a silent ring, seconds. `rejoin_s`: the time that requests wait for a lost
  /// device, seconds; 0: a loss that cannot be made good ends them at once.
  Deadlines(RolePtr role, double floor_s, double rejoin_s, double since);

  const double floor_s, rejoin_s;
  /// Since when the ring may be incomplete.
  double incomplete_since;
  Patience patience;

  /// Another placement is in force.
  void adopt(RolePtr role) { patience = Patience(std::move(role), floor_s); }
  /// When the schedule must look at them; never: there are none.
  Due due() const { return due_; }
  /// Something has changed that must be looked at.
  void look_at(double now) { due_ = now; }
  /// Whether the schedule must look at them now.
  bool are_due(double now) const { return !due_ || now >= *due_; }

  // -- outages

  /// Devices were lost for which there are no others.
  void devices_lost(const Names& gone, double now);
  /// The links that are down between devices that are both there.
  void links_down(const std::vector<LinkNames>& links, double now);
  /// Whatever was lost is there again, or is replaced; whether that was waited for.
  bool outage_over();

  // -- requests

  /// A step of a request is over; one that began while a device was away says nothing of the next.
  void took(const Job& job, const std::string& phase, double now);
  /// Requests that have waited for too long, one after the other.
  void late(const Queue& queue, const Names& absent, Orphans& orphans, double now, const Carry& carry);
  /// All requests, where nobody came back in time.
  void lost_for_good(const Queue& queue, double now, const Carry& carry);
  /// Whether the devices are to be asked for a sign of life, since requests have stood still for a while.
  bool asks(const std::vector<JobPtr>& stepping, double now);
  /// All that is late has been dealt with: find the next deadline.
  void set_due(const Queue& queue, const Names& absent, Due orphans_due, double now);

 private:
  void late_steps(const Queue& queue, double now, const Carry& carry);
  double opens_by(const Job& job) const;
  Due soonest_of(const Queue& queue, const Names& absent, Due orphans_due, double now) const;

  Rejoin rejoin_;
  Cut cut_;
  double asked_at_ = 0.0;
  Due due_ = 0.0;
};

}  // namespace partc::core
