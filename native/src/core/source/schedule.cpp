#include "core/source/schedule.hpp"

#include <algorithm>

#include "core/device/journal.hpp"
#include "format/complaints.hpp"
#include "format/message_parts.hpp"

namespace partc::core {
namespace {

constexpr std::size_t MOST_QUEUED = 1024;
constexpr double REPORT_S = 1.0;
/// Faults may be noticed late by this fraction of the shortest patience.
constexpr double LATE = 0.05;

/// The values of one of the requests that have a row each.
Tensors row_of(const Tensors& values, std::uint64_t row) {
  Tensors found;
  for (const auto& [name, all] : values) found.set(name, part_of(all, 0, row, row + 1));
  return found;
}

Error cancelled() { return run_error("the request was cancelled"); }

}  // namespace

Schedule::Schedule(RolePtr of_role, double floor_s, double rejoin_s, double linger_s, std::uint64_t next_number,
                   double incomplete_since)
    : role(std::move(of_role)),
      next_number(next_number),
      incomplete_since(incomplete_since),
      patience(role, floor_s),
      sharing(role),
      floor_s_(floor_s),
      rejoin_s_(rejoin_s),
      linger_s_(linger_s),
      orphans_(linger_s),
      slots_(role->model().max_requests) {
  rejoin_.limit_s = rejoin_s;
  cut_.limit_s = std::max(floor_s, rejoin_s);
}

void Schedule::adopt(RolePtr of_role) {
  role = sharing.role = std::move(of_role);
  slots_.forget();
  patience = Patience(role, floor_s_);
}

void Schedule::lost(const Names& gone, double now, Actions& out) {
  rejoin_.begin(gone, now);
  look_again_ = now;
  if (rejoin_s_ == 0.0) give_up(now, out);
}

void Schedule::cut(const std::vector<LinkNames>& links, double now) {
  if (cut_.found(links, now)) look_again_ = now;
}

void Schedule::whole(double now) {
  if (!rejoin_.since) return;
  rejoin_.since.reset();
  for (const auto& [number, job] : running_) job->progress.moved(now);
}

void Schedule::count_losses(const Names& devices, double now, Actions& out) {
  for (const std::string& device : devices) {
    for (const JobPtr& job : all(running_)) {
      if (++job->losses[device] > 1) fail(job, lost_twice(device), now, out);
    }
  }
}

bool Schedule::is_at_rest() const {
  return std::ranges::none_of(running_, [](const auto& entry) { return entry.second->in_flight; });
}

std::uint64_t Schedule::first_number() const {
  std::optional<std::uint64_t> first;
  for (const auto& [number, job] : running_) first = std::min(first.value_or(number), number);
  for (const JobPtr& job : sharing.ended()) first = std::min(first.value_or(*job->number), *job->number);
  return first.value_or(next_number);
}

void Schedule::hold(bool at_once) {
  held = true;
  sharing.hold(at_once);
  if (!at_once) return;
  for (const auto& [number, job] : running_) job->in_flight = false;
}

std::vector<messages::Reached> Schedule::reached() const {
  std::vector<messages::Reached> found;
  for (const auto& [number, job] : running_) found.push_back({number, job->slot, job->reached()});
  return found;
}

std::pair<std::vector<messages::Resumption>, std::uint64_t> Schedule::rewind(
    const std::function<std::uint64_t(std::uint64_t, std::uint64_t)>& watermark) {
  sharing.hold(true);
  std::pair<std::vector<messages::Resumption>, std::uint64_t> found;
  for (const auto& [number, job] : running_) {
    const std::uint64_t step = watermark(number, job->reached());
    found.second += job->reached() - step;
    found.first.push_back(job->rewind(step, *role));
  }
  return found;
}

void Schedule::go_on(double now, Actions& out) {
  held = sharing.held = false;
  whole(now);
  let_go(out);
  for (const auto& [number, job] : running_) {
    if (!job->in_flight) begin(job, now, out);
  }
  sharing.begin(now, out);
  pump(now, out);
}

void Schedule::fail(const Failed& failed, double now, Actions& out) {
  // An end may open the next request, but ends no other one of these.
  for (const JobPtr& job : sharing.concerned(failed, all(running_))) fail(job, failed.error, now, out);
}

void Schedule::submit(const Origin& origin, const messages::Submit& submit, const Frames& frames, double now,
                      Actions& out) {
  if (orphans_.find(submit.ticket, jobs())) {
    std::size_t heard = 0;
    for (const Counts& row : submit.known) heard = std::max(heard, row.size());
    return resume(origin, {submit.ticket, heard}, out);
  }
  try {
    if (waiting_.size() >= MOST_QUEUED) {
      throw refused(std::to_string(MOST_QUEUED) + " requests are waiting already", "", "send it again later");
    }
    waiting_.push_back(read_job(origin, submit, frames, *role, now));
  } catch (const Error& error) {
    if (error.kind != ErrorKind::run) throw;
    out.push_back(Send{origin, messages::Error{submit.ticket, messages::problem_of(error)}, {}});
    out.push_back(Log{"request-refused", {{"cause", {error.cause}}}});  // the reason may name tokens
    return;
  }
  pump(now, out);
}

void Schedule::resume(const Origin& origin, const messages::Resume& resume, Actions& out) {
  const auto found = orphans_.find(resume.ticket, jobs());
  if (!found) {
    out.push_back(Send{origin, unknown(resume.ticket), {}});
    return;
  }
  tell(out);
  found->first->origin = origin;
  missed(*found->first, found->second, origin, resume.from_step, out);
}

void Schedule::away(const Origin& origin, double now, Actions& out) {
  for (const JobPtr& job : jobs()) {
    if (job->origin != origin) continue;
    if (linger_s_ != 0.0) {
      orphans_.add(job, now);
      look_again_ = now;
    } else {
      fail(job, cancelled(), now, out);
    }
  }
}

void Schedule::cancel(const Origin& origin, const messages::Cancel& cancel, double now, Actions& out) {
  for (const JobPtr& job : jobs()) {
    if (job->origin == origin && job->ticket == cancel.ticket) fail(job, cancelled(), now, out);
  }
}

void Schedule::pump(double now, Actions& out) {
  while (!waiting_.empty() && slots_.any_free() && absent.empty() && !held) {
    const JobPtr job = waiting_.front();
    waiting_.pop_front();
    const auto [slot, reuse] = slots_.take(job->reusable);
    job->open(next_number++, slot, *role, reuse);
    running_.set(*job->number, job);
    begin(job, now, out);
  }
}

void Schedule::moved(std::uint64_t number, double now) {
  const std::vector<JobPtr> together = sharing.of(number);
  for (const JobPtr& job : together) job->progress.moved(now);
  const JobPtr* alone = running_.find(number);
  if (together.empty() && alone != nullptr) (*alone)->progress.moved(now);
}

void Schedule::emitted(const Step& step, const Tensors& values, double now, Actions& out) {
  sharing.over(step.request);
  if (step.others.empty()) {
    take_values(step, values, now, out);
  } else {
    std::uint64_t row = 0;
    for (const Step& own : apart(step)) take_values(own, row_of(values, row++), now, out);
  }
  let_go(out);
  sharing.begin(now, out);
  pump(now, out);
}

/// The values of a request.
void Schedule::take_values(const Step& step, const Tensors& values, double now, Actions& out) {
  const JobPtr* found = running_.find(step.request);
  if (found == nullptr) return;
  const JobPtr job = *found;
  if (job->started >= incomplete_since) patience.took(step.phase, now - job->started);  // else a device was lost
  job->progress.moved(now);
  job->in_flight = false;
  job->over = step.step + 1;
  if (!role->generates()) {
    job->outputs = values;
    return finish(job, now, out);
  }
  const Tensor& tokens = values.begin()->second;
  if (step.step < job->reached()) {
    const Tensor& known = job->drawn[step.step + 1 - job->prompt.size()];
    const auto one = tokens.elements<std::int64_t>(), other = known.elements<std::int64_t>();
    for (std::size_t row = 0; row < std::min(one.size(), other.size()); ++row) job->mismatches += one[row] != other[row];
  } else {
    take(*job, tokens, step.likely, out);
  }
  if (job->finished()) {
    finish(job, now, out);
  } else if (!held) {
    begin(job, now, out);
  }
}

/// New tokens are there.
void Schedule::take(Job& job, const Tensor& tokens, const Likelies& likely, Actions& out) {
  const std::uint64_t number = job.step();
  if (!likely.empty()) job.likely.set(number, likely);
  const auto numbers = tokens.elements<std::int64_t>();
  const Fresh fresh = job.take({numbers.begin(), numbers.end()});
  Tensor row = tokens;
  row.shape = {numbers.size()};
  job.drawn.push_back(std::move(row));
  if (job.origin) untold_.push_back({*job.origin, messages::Token{job.ticket, number, fresh, job.finish, likely}, {}});
  if (job.finished() || number == 0 || role->ring().size() == 1) tell(out);
}

void Schedule::tell(Actions& out) {
  for (Send& send : untold_) out.push_back(std::move(send));
  untold_.clear();
}

void Schedule::reported(const messages::Timings& message, const Frames& frames, double now, Actions& out) {
  const JobPtr* found = reporting_.find(message.request);
  if (found == nullptr) return;
  const JobPtr job = *found;
  if (job->origin) {
    const messages::Stats stats{job->ticket, message.device, message.columns, message.values};
    out.push_back(Send{*job->origin, stats, frames});
  }
  job->reports.erase(message.device);
  if (job->reports.empty()) answer(job, now, out);
}

void Schedule::crossed(const messages::Crossed& message, const Frames& frames, Actions& out) {
  const JobPtr* found = running_.find(message.request);
  if (found == nullptr) found = reporting_.find(message.request);  // the last ones may come behind the last token
  if (found == nullptr || !(*found)->origin || !(*found)->is_news(message)) return;
  const messages::Trace trace{(*found)->ticket, message.device, message.peer, message.step, message.values};
  out.push_back(Send{*(*found)->origin, trace, frames});
}

void Schedule::look(double now, Actions& out) {
  if (!looks(now)) return;
  for (const JobPtr& job : all(reporting_)) {
    if (now >= job->progress.expires(REPORT_S)) answer(job, now, out);
  }
  look_at_running(now, out);
  for (const JobPtr& job : orphans_.expired(now)) fail(job, orphans_.error(), now, out);
  for (const JobPtr& job : std::vector<JobPtr>(waiting_.begin(), waiting_.end())) {
    if (!absent.empty() && now >= most_awaited(*job)) fail(job, not_joined(absent), now, out);
  }
  ask(now, out);
  // Steps move deadlines all the time: looking at them at each would cost more than being a little late.
  const Due first = soonest_deadline(now);
  look_again_ = first ? Due(std::min(std::max(*first, now), now + floor_s_ * LATE)) : Due();
}

void Schedule::look_at_running(double now, Actions& out) {
  if (rejoin_.since) {
    if (rejoin_.is_over(now)) give_up(now, out);
    return;
  }
  if (cut_.is_over(now)) {
    for (const JobPtr& job : all(running_)) fail(job, cut_.error(), now, out);
  }
  for (const JobPtr& job : all(running_)) {
    const double most = patience.of(*job, running_.size(), now);
    if (!job->in_flight || now < job->progress.expires(most)) continue;
    const Error error = patience.stalled(*job, most, now);
    const Names silent = patience.silent(*job, now);
    if (rejoin_s_ != 0.0 && now < job->stands_since(job->progress.since) + rejoin_s_) {
      job->progress.moved(now);
      out.push_back(Stalled{silent, error});
    } else {
      fail(job, error, now, out);
    }
  }
}

/// Nobody came back in time.
void Schedule::give_up(double now, Actions& out) {
  const Error error = rejoin_.error();
  rejoin_.since.reset();
  std::vector<JobPtr> ending = all(running_);
  for (const JobPtr& job : all(reporting_)) ending.push_back(job);
  for (const JobPtr& job : ending) fail(job, error, now, out);
}

std::vector<JobPtr> Schedule::jobs() const {
  std::vector<JobPtr> found(waiting_.begin(), waiting_.end());
  for (const Jobs* each : {&running_, &reporting_}) {
    for (const JobPtr& job : all(*each)) found.push_back(job);
  }
  return found;
}

std::vector<JobPtr> Schedule::all(const Jobs& jobs) {
  std::vector<JobPtr> found;
  for (const auto& [number, job] : jobs) found.push_back(job);
  return found;
}

/// Begin the steps that lead to the next token: one, maybe a shared one, parts of a prompt, or known ones.
void Schedule::begin(const JobPtr& job, double now, Actions& out) {
  if (sharing.serves(*job)) return sharing.add(job);
  job->started = now;
  job->progress.moved(now);
  for (auto& [step, inputs] : job->calls()) out.push_back(Begin{step, inputs});
}

/// Free the slots of requests that have ended while others computed with them.
void Schedule::let_go(Actions& out) {
  for (const JobPtr& job : sharing.freed()) {
    slots_.give(job->slot, *job->number, {});
    out.push_back(End{*job->number, false});
  }
}

/// All tokens are out: the slot is free for the next request while the devices report.
void Schedule::finish(const JobPtr& job, double now, Actions& out) {
  release(*job);
  job->progress.moved(now);
  job->reports = {role->ring().begin(), role->ring().end()};
  reporting_.set(*job->number, job);
  out.push_back(End{*job->number, true});
  pump(now, out);
}

void Schedule::release(const Job& job) {
  if (job.number && running_.erase(*job.number)) slots_.give(job.slot, *job.number, job.kept());
}

void Schedule::answer(const JobPtr& job, double now, Actions& out) {
  reporting_.erase(*job->number);
  messages::Result result;
  result.ticket = job->ticket;
  result.tokens = job->tokens;
  result.finish = job->finish;
  result.elapsed_s = std::max(0.0, now - job->submitted);
  result.replayed = job->replayed;
  result.mismatches = job->mismatches;
  result.reused = job->reuse ? job->reuse->rows : 0;
  result.values = announced(job->outputs, role->types);
  Frames frames;
  for (const auto& [name, tensor] : job->outputs) frames.push_back(tensor.bytes);
  end(job, {std::move(result), std::move(frames)}, now, out);
}

/// Tell the client, and keep it in case the client is away; outputs may be too large for that.
void Schedule::end(const JobPtr& job, Ending ending, double now, Actions& out) {
  out.push_back(ended(*job, ending.message, now));
  if (job->origin) out.push_back(Send{*job->origin, ending.message, ending.frames});
  if (linger_s_ != 0.0 && (!job->origin || role->generates())) orphans_.ended(job, std::move(ending), now);
}

void Schedule::fail(const JobPtr& job, const Error& error, double now, Actions& out) {
  tell(out);
  const auto waits = std::ranges::find(waiting_, job);
  if (waits != waiting_.end()) {
    waiting_.erase(waits);
  } else if (sharing.end(job)) {
    running_.erase(*job->number);
  } else {
    for (const JobPtr& mate : sharing.of(*job->number)) sharing.over(*mate->number);
    let_go(out);
    release(*job);
    reporting_.erase(*job->number);
    out.push_back(End{*job->number, false});
  }
  end(job, {messages::Error{job->ticket, messages::problem_of(error)}, {}}, now, out);
  sharing.begin(now, out);
  pump(now, out);
}

/// When a request has waited long enough for a complete ring.
double Schedule::most_awaited(const Job& job) const {
  return std::max(job.submitted, incomplete_since) + std::max(floor_s_, rejoin_s_);
}

/// Ask the devices for a sign of life when requests have stood still for a while.
void Schedule::ask(double now, Actions& out) {
  // Sums as in `soonest_deadline`: a difference may round otherwise, and then the due time would never pass.
  const bool is_still = std::ranges::any_of(running_, [&](const auto& entry) {
    return entry.second->in_flight && now >= entry.second->progress.expires(floor_s_ / 4);
  });
  if (!is_still || now < asked_at_ + floor_s_ / 4) return;
  asked_at_ = now;
  out.push_back(Broadcast{messages::Ping{}});
}

Due Schedule::soonest_deadline(double now) const {
  const bool is_whole = !rejoin_.since;
  Due first = soonest({rejoin_.ends(), orphans_.due(), !running_.empty() && is_whole ? cut_.ends() : Due()});
  for (const auto& [number, job] : running_) {
    if (!is_whole || !job->in_flight) continue;
    first = soonest({first, job->progress.expires(patience.of(*job, running_.size(), now)),
                     std::max(job->progress.since, asked_at_) + floor_s_ / 4});
  }
  for (const auto& [number, job] : reporting_) first = soonest({first, job->progress.expires(REPORT_S)});
  for (const JobPtr& job : waiting_) {
    if (!absent.empty()) first = soonest({first, most_awaited(*job)});
  }
  return first;
}

}  // namespace partc::core
