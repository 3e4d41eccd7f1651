#include "core/source/deadlines.hpp"

#include <algorithm>

namespace partc::core {
namespace {

constexpr double REPORT_S = 1.0;
/// Faults may be noticed late by this fraction of the shortest patience.
constexpr double LATE = 0.05;

}  // namespace

Deadlines::Deadlines(RolePtr role, double least_s, double wait_s, double since)
    : floor_s(least_s), rejoin_s(wait_s), incomplete_since(since), patience(std::move(role), least_s) {
  rejoin_.limit_s = rejoin_s;
  cut_.limit_s = std::max(floor_s, rejoin_s);
}

void Deadlines::devices_lost(const Names& gone, double now) {
  rejoin_.begin(gone, now);
  due_ = now;
}

void Deadlines::links_down(const std::vector<LinkNames>& links, double now) {
  if (cut_.found(links, now)) due_ = now;
}

bool Deadlines::outage_over() {
  const bool was_awaited = rejoin_.since.has_value();
  rejoin_.since.reset();
  return was_awaited;
}

void Deadlines::took(const Job& job, const std::string& phase, double now) {
  if (job.started >= incomplete_since) patience.took(phase, now - job.started, job.awaited_tokens());
}

void Deadlines::late(const Queue& queue, const Names& absent, Orphans& orphans, double now, const Carry& carry) {
  for (const JobPtr& job : queue.reporting()) {
    if (now >= job->progress.expires(REPORT_S)) carry(job, std::monostate{});
  }
  if (rejoin_.since) {
    lost_for_good(queue, now, carry);
  } else {
    late_steps(queue, now, carry);
  }
  for (const JobPtr& job : orphans.expired(now)) carry(job, orphans.error());
  for (const JobPtr& job : queue.waiting()) {
    if (!absent.empty() && now >= opens_by(*job)) carry(job, not_joined(absent));
  }
}

void Deadlines::lost_for_good(const Queue& queue, double now, const Carry& carry) {
  if (!rejoin_.is_over(now)) return;
  const Error error = rejoin_.error();
  rejoin_.since.reset();
  std::vector<JobPtr> ending = queue.running();
  for (const JobPtr& job : queue.reporting()) ending.push_back(job);
  for (const JobPtr& job : ending) carry(job, error);
}

bool Deadlines::asks(const std::vector<JobPtr>& stepping, double now) {
  // Sums as in `soonest_of`: a difference may round otherwise, and then the due time would never pass.
  const bool is_still =
      std::ranges::any_of(stepping, [&](const JobPtr& job) { return now >= job->progress.expires(floor_s / 4); });
  if (!is_still || now < asked_at_ + floor_s / 4) return false;
  asked_at_ = now;
  return true;
}

void Deadlines::set_due(const Queue& queue, const Names& absent, Due orphans_due, double now) {
  // Steps move deadlines all the time: looking at them at each would cost more than being a little late.
  const Due first = soonest_of(queue, absent, orphans_due, now);
  due_ = first ? Due(std::min(std::max(*first, now), now + floor_s * LATE)) : Due();
}

/// Requests whose step does not end, or cannot.
void Deadlines::late_steps(const Queue& queue, double now, const Carry& carry) {
  if (cut_.is_over(now)) {
    for (const JobPtr& job : queue.running()) carry(job, cut_.error());
  }
  for (const JobPtr& job : queue.running()) {
    const double most = patience.of(*job, queue.running().size(), now);
    if (job->state != JobState::stepping || now < job->progress.expires(most)) continue;
    const Error error = patience.stalled(*job, most, now);
    const Names silent = patience.silent(*job, now);
    if (rejoin_s != 0.0 && now < job->stands_since(job->progress.since) + rejoin_s) {
      job->progress.moved(now);
      carry(job, Stalled{silent, error});
    } else {
      carry(job, error);
    }
  }
}

/// When a request has waited long enough for a complete ring.
double Deadlines::opens_by(const Job& job) const {
  return std::max(job.submitted, incomplete_since) + std::max(floor_s, rejoin_s);
}

Due Deadlines::soonest_of(const Queue& queue, const Names& absent, Due orphans_due, double now) const {
  const std::vector<JobPtr> running = queue.running();
  const bool is_whole = !rejoin_.since;
  Due first = soonest({rejoin_.ends(), orphans_due, !running.empty() && is_whole ? cut_.ends() : Due()});
  for (const JobPtr& job : is_whole ? queue.stepping() : std::vector<JobPtr>{}) {
    first = soonest({first, job->progress.expires(patience.of(*job, running.size(), now)),
                     std::max(job->progress.since, asked_at_) + floor_s / 4});
  }
  for (const JobPtr& job : queue.reporting()) first = soonest({first, job->progress.expires(REPORT_S)});
  for (const JobPtr& job : queue.waiting()) {
    if (!absent.empty()) first = soonest({first, opens_by(*job)});
  }
  return first;
}

}  // namespace partc::core
