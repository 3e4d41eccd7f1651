#include "core/source/queue.hpp"

#include <algorithm>

#include "format/complaints.hpp"

namespace partc::core {
namespace {

constexpr std::size_t MOST_WAITING = 1024;

}  // namespace

std::vector<JobPtr> Queue::all() const {
  std::vector<JobPtr> found = waiting();
  for (const Jobs* each : {&running_, &reporting_}) {
    for (const auto& [number, job] : *each) found.push_back(job);
  }
  return found;
}

std::vector<JobPtr> Queue::stepping() const {
  std::vector<JobPtr> found;
  for (const auto& [number, job] : running_) {
    if (job->state == JobState::stepping) found.push_back(job);
  }
  return found;
}

std::vector<messages::Reached> Queue::reached() const {
  std::vector<messages::Reached> found;
  for (const auto& [number, job] : running_) found.push_back({number, job->slot, job->reached()});
  return found;
}

void Queue::check_room() const {
  if (waiting_.size() < MOST_WAITING) return;
  throw refused(std::to_string(MOST_WAITING) + " requests are waiting already", "", "send it again later");
}

JobPtr Queue::open(const Role& role) {
  const JobPtr job = waiting_.front();
  waiting_.pop_front();
  const auto [slot, reuse] = slots_.take(job->reusable);
  job->open(next_number++, slot, role, reuse);
  job->become(JobState::standing);
  running_.set(*job->number, job);
  return job;
}

void Queue::report(const JobPtr& job) {
  leave(*job);
  job->become(JobState::reporting);
  reporting_.set(*job->number, job);
}

void Queue::end(const JobPtr& job, bool keeps_slot) {
  if (job->state == JobState::waiting) {
    waiting_.erase(std::ranges::find(waiting_, job));
  } else if (job->state == JobState::reporting) {
    reporting_.erase(*job->number);
  } else if (keeps_slot) {
    running_.erase(*job->number);
  } else {
    leave(*job);
  }
  job->become(JobState::over);
}

std::vector<JobPtr> Queue::list(const Jobs& jobs) {
  std::vector<JobPtr> found;
  for (const auto& [number, job] : jobs) found.push_back(job);
  return found;
}

JobPtr Queue::find(const Jobs& jobs, std::uint64_t number) {
  const JobPtr* found = jobs.find(number);
  return found == nullptr ? nullptr : *found;
}

void Queue::leave(const Job& job) {
  running_.erase(*job.number);
  slots_.give(job.slot, *job.number, job.kept());
}

}  // namespace partc::core
