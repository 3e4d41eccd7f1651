#include "core/source/sharing.hpp"

#include <algorithm>

namespace partc::core {
namespace {

bool has(const auto& jobs, const JobPtr& job) { return std::ranges::find(jobs, job) != jobs.end(); }

/// What every row brings, one behind the other.
Tensors side_by_side(const std::vector<Call>& calls) {
  Tensors found;
  for (const auto& [name, first] : calls.front().second) {
    std::vector<Tensor> rows;
    for (const auto& [step, inputs] : calls) rows.push_back(inputs.at(name));
    found.set(name, joined_tensors(rows, 0));
  }
  return found;
}

}  // namespace

Begin begin_of(std::vector<Call> calls) {
  if (calls.size() == 1) return {std::move(calls.front().first), std::move(calls.front().second)};
  std::vector<Step> steps;
  for (const auto& [step, inputs] : calls) steps.push_back(step);
  return {together(steps), side_by_side(calls)};
}

void Sharing::greeted(const std::string& device, bool takes) {
  if (takes) {
    takers_.insert(device);
  } else {
    takers_.erase(device);
  }
}

bool Sharing::serves(const Job& job) const {
  if (role->model().step_requests < 2 || !job.shares || !job.is_at_token()) return false;
  return std::ranges::all_of(role->ring(),
                             [&](const std::string& name) { return name == role->device() || takes(name); });
}

void Sharing::add(const JobPtr& job) {
  if (!has(due_, job)) due_.push_back(job);
}

void Sharing::begin(double now, const BeginAlone& alone, Actions& out) {
  if (held) return;
  for (std::vector<JobPtr> jobs = take(); !jobs.empty(); jobs = take()) {
    std::vector<Call> calls;
    for (const JobPtr& job : jobs) {
      job->step_begins(now);
      calls.push_back(job->calls().front());  // the only one: it is at a token
    }
    out.push_back(jobs.size() > 1 ? begin_of(std::move(calls)) : alone(*jobs.front(), std::move(calls.front()), now));
  }
}

/// The requests of the next step, which is under way from now on; none: enough are.
std::vector<JobPtr> Sharing::take() {
  const std::size_t stages = role->ring().size();
  if (due_.empty() || flights_.size() >= stages) return {};
  std::size_t many = due_.size();
  for (const auto& [first, jobs] : flights_) many += jobs.size();
  const std::size_t most = std::min<std::size_t>(role->model().step_requests, (many + stages - 1) / stages);
  const auto end = due_.begin() + static_cast<std::ptrdiff_t>(std::min(most, due_.size()));
  std::vector<JobPtr> jobs(due_.begin(), end);
  due_.erase(due_.begin(), end);
  flights_.set(*jobs.front()->number, jobs);
  return jobs;
}

std::vector<JobPtr> Sharing::of(std::uint64_t number) const {
  if (const std::vector<JobPtr>* found = flights_.find(number)) return *found;
  for (const auto& [first, jobs] : flights_) {
    if (std::ranges::any_of(jobs, [&](const JobPtr& job) { return *job->number == number; })) return jobs;
  }
  return {};
}

void Sharing::hold(bool at_once) {
  held = true;
  due_.clear();
  if (at_once) flights_.clear();
}

std::vector<JobPtr> Sharing::concerned(const Failed& failed, const std::vector<JobPtr>& running) const {
  std::vector<JobPtr> all = running, found;
  all.insert(all.end(), ended_.begin(), ended_.end());
  for (const JobPtr& job : all) {
    if (!failed.concerns(*job->number)) continue;
    std::vector<JobPtr> mates = of(*job->number);
    mates.push_back(job);
    for (const JobPtr& mate : mates) {
      if (!has(found, mate)) found.push_back(mate);
    }
  }
  std::erase_if(found, [&](const JobPtr& job) { return has(ended_, job); });
  return found;
}

bool Sharing::end(const JobPtr& job) {
  std::erase(due_, job);
  const std::vector<JobPtr> mates = job->number ? of(*job->number) : std::vector<JobPtr>{};
  const bool go_on = std::ranges::any_of(mates, [&](const JobPtr& mate) { return mate != job && !has(ended_, mate); });
  if (go_on) ended_.push_back(job);
  return go_on;
}

std::vector<JobPtr> Sharing::freed() {
  std::vector<JobPtr> freed, others;
  for (const JobPtr& job : ended_) (is_under_way(job) ? others : freed).push_back(job);
  ended_ = std::move(others);
  return freed;
}

bool Sharing::is_under_way(const JobPtr& job) const {
  return std::ranges::any_of(flights_, [&](const auto& flight) { return has(flight.second, job); });
}

}  // namespace partc::core
