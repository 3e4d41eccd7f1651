// Steps that requests share at the source: the tokens of several requests are computed in one step
// (partc/runtime/core/source/sharing.py).
#pragma once

#include <deque>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/actions.hpp"
#include "core/source/job.hpp"
#include "format/map.hpp"

namespace partc::core {

/// (request, its step, now) → the begin of a step that no other request shares.
using BeginAlone = std::function<Begin(Job& job, Call call, double now)>;

/// The begin of one step of all these, which have one token each.
Begin begin_of(std::vector<Call> calls);

/// The requests that may share steps.
class Sharing {
 public:
  explicit Sharing(RolePtr of_role) : role(std::move(of_role)) {}

  RolePtr role;
  /// Whether no step begins.
  bool held = false;

  /// A device tells whether it takes shared steps.
  void greeted(const std::string& device, bool takes);
  /// Whether a device has told that it takes shared steps.
  bool takes(const std::string& device) const { return takers_.contains(device); }
  /// Whether the next step of a request may be one of several: all devices take such, and the request does.
  bool serves(const Job& job) const;
  /// A request is due.
  void add(const JobPtr& job);
  /// Begin steps of the requests that are due, as many as the ring has stages.
  void begin(double now, const BeginAlone& alone, Actions& out);
  /// The requests of the step under way that a request is in; none: it is in no such step.
  std::vector<JobPtr> of(std::uint64_t number) const;
  /// The step of this first request is over, or will never be.
  void over(std::uint64_t number) { flights_.erase(number); }
  /// No step begins any more; `at_once`: those under way are lost.
  void hold(bool at_once);
  /// The running requests that a failure ends: whoever shares a step with one ends with it.
  std::vector<JobPtr> concerned(const Failed& failed, const std::vector<JobPtr>& running) const;
  /// A request ends; whether others go on with it in a step, so that its slot must wait for that.
  bool end(const JobPtr& job);
  /// The ended requests that no step under way is in, once.
  std::vector<JobPtr> freed();
  /// The ended requests that steps under way are in.
  const std::vector<JobPtr>& ended() const { return ended_; }

 private:
  std::vector<JobPtr> take();
  bool is_under_way(const JobPtr& job) const;

  /// Devices whose runners take shared steps.
  std::set<std::string> takers_;
  /// Requests that wait for a step, in the order in which they became due.
  std::deque<JobPtr> due_;
  /// First request → all of a step under way, also those that have ended since.
  Map<std::uint64_t, std::vector<JobPtr>> flights_;
  /// Requests whose clients have been answered while others computed with them.
  std::vector<JobPtr> ended_;
};

}  // namespace partc::core
