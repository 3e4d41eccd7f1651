#include "core/source/schedule.hpp"

#include <algorithm>

#include "core/source/reading.hpp"
#include "format/complaints.hpp"
#include "format/message_parts.hpp"

namespace partc::core {
namespace {

/// The values of one row.
Tensors row_of(const Tensors& values, std::uint64_t row) {
  Tensors found;
  for (const auto& [name, all] : values) found.set(name, part_of(all, 0, row, row + 1));
  return found;
}

Error cancelled() { return run_error("the request was cancelled"); }

}  // namespace

Schedule::Schedule(RolePtr of_role, const Start& start, double now)
    : role(std::move(of_role)),
      queue(role->model().max_requests, start.first_request),
      deadlines(role, start.patience_s, start.rejoin_s, now),
      clients(start.linger_s, role->generates()),
      sharing(role),
      guessed(queue, sharing) {}

void Schedule::adopt(RolePtr of_role) {
  role = sharing.role = std::move(of_role);
  queue.forget_rows();
  deadlines.adopt(role);
  guessed.guessing.forget_times(role->ring().size());
}

void Schedule::devices_lost(const Names& gone, double now, Actions& out) {
  deadlines.devices_lost(gone, now);
  if (deadlines.rejoin_s != 0.0) return;
  deadlines.lost_for_good(queue, now, [&](const JobPtr& job, const Verdict& verdict) {
    fail(job, std::get<Error>(verdict), now, out);
  });
}

void Schedule::outage_over(double now) {
  if (!deadlines.outage_over()) return;
  for (const JobPtr& job : queue.running()) job->progress.moved(now);
}

void Schedule::count_losses(const Names& devices, double now, Actions& out) {
  for (const std::string& device : devices) {
    for (const JobPtr& job : queue.running()) {
      if (++job->losses[device] > 1) fail(job, lost_twice(device), now, out);
    }
  }
}

std::uint64_t Schedule::first_number() const {
  std::optional<std::uint64_t> first;
  for (const std::vector<JobPtr>& jobs : {queue.running(), sharing.ended()}) {
    for (const JobPtr& job : jobs) first = std::min(first.value_or(*job->number), *job->number);
  }
  return first.value_or(queue.next_number);
}

void Schedule::hold(bool at_once) {
  held = true;
  sharing.hold(at_once);
  if (!at_once) return;
  for (const JobPtr& job : queue.running()) job->stand();
}

std::pair<std::vector<messages::Resumption>, std::uint64_t> Schedule::rewind(
    const std::function<std::uint64_t(std::uint64_t, std::uint64_t)>& watermark) {
  sharing.hold(true);
  std::pair<std::vector<messages::Resumption>, std::uint64_t> found;
  for (const JobPtr& job : queue.running()) {
    const std::uint64_t step = watermark(*job->number, job->reached());
    found.second += job->reached() - step;
    found.first.push_back(job->rewind(step, *role));
  }
  return found;
}

void Schedule::go_on(double now, Actions& out) {
  held = sharing.held = false;
  outage_over(now);
  let_go(out);
  for (const JobPtr& job : queue.running()) {
    if (job->state == JobState::standing) begin(job, now, out);
  }
  begin_shared(now, out);
  open_waiting(now, out);
}

void Schedule::fail(const Failed& failed, double now, Actions& out) {
  // An end may open the next request, but ends no other one of these.
  for (const JobPtr& job : sharing.concerned(failed, queue.running())) fail(job, failed.error, now, out);
}

void Schedule::submit(const Origin& origin, const messages::Submit& submit, const Frames& frames, double now,
                      Actions& out) {
  if (clients.knows(submit.ticket, queue.all())) {
    std::size_t heard = 0;
    for (const Counts& row : submit.known) heard = std::max(heard, row.size());
    return resume(origin, {submit.ticket, heard}, out);
  }
  try {
    queue.check_room();
    queue.put(read_job(origin, submit, frames, *role, now));
  } catch (const Error& error) {
    if (error.kind != ErrorKind::run) throw;
    return refusal(origin, submit, error, out);
  }
  open_waiting(now, out);
}

void Schedule::resume(const Origin& origin, const messages::Resume& resume, Actions& out) {
  clients.resume(origin, resume, queue.all(), out);
}

void Schedule::client_disconnected(const Origin& origin, double now, Actions& out) {
  for (const JobPtr& job : queue.all()) {
    if (job->origin != origin) continue;
    if (clients.waits_for(job, now)) {
      deadlines.look_at(now);
    } else {
      fail(job, cancelled(), now, out);
    }
  }
}

void Schedule::cancel(const Origin& origin, const messages::Cancel& cancel, double now, Actions& out) {
  for (const JobPtr& job : queue.all()) {
    if (job->origin == origin && job->ticket == cancel.ticket) fail(job, cancelled(), now, out);
  }
}

void Schedule::open_waiting(double now, Actions& out) {
  while (queue.has_next() && absent.empty() && !held) begin(queue.open(*role), now, out);
}

void Schedule::guess(double now, Actions& out) {
  if (held) guessed.due.reset();
  guessed.begin(now, out);
}

void Schedule::moved(std::uint64_t number, double now) {
  const std::vector<JobPtr> together = sharing.of(number);
  for (const JobPtr& job : together) job->progress.moved(now);
  if (!together.empty()) return;
  if (const JobPtr alone = queue.runs(number)) alone->progress.moved(now);
}

void Schedule::emitted(const Step& step, const Tensors& values, double now, Actions& out) {
  if (step.others.empty() && is_void(step)) return;
  sharing.over(step.request);
  guessed.timed(step);
  if (step.rows() == 1) {
    take_values(step, values, now, out);
  } else {
    std::uint64_t row = 0;
    for (const Step& own : apart(step)) {
      const Tensors given = row_of(values, row++);
      if (!is_void(own)) take_values(own, given, now, out);
    }
  }
  let_go(out);
  begin_shared(now, out);
  open_waiting(now, out);
}

void Schedule::reported(const messages::Timings& message, const Frames& frames, double now, Actions& out) {
  const JobPtr job = queue.reports(message.request);
  if (!job) return;
  clients.reported(*job, message, frames, out);
  job->reports.erase(message.device);
  if (job->reports.empty()) answer(job, now, out);
}

void Schedule::crossed(const messages::Crossed& message, const Frames& frames, Actions& out) {
  JobPtr job = queue.runs(message.request);
  if (!job) job = queue.reports(message.request);  // the last ones may come behind the last token
  if (job) clients.crossed(*job, message, frames, out);
}

void Schedule::check_deadlines(double now, Actions& out) {
  if (!deadlines.are_due(now)) return;
  deadlines.late(queue, absent, clients.orphans, now, [&](const JobPtr& job, const Verdict& verdict) {
    std::visit(Match{[&](const Error& error) { fail(job, error, now, out); },
                     [&](const Stalled& stalled) { out.push_back(stalled); },
                     [&](const std::monostate&) { answer(job, now, out); }},
               verdict);
  });
  if (deadlines.asks(queue.stepping(), now)) out.push_back(Broadcast{messages::Ping{}});
  deadlines.set_due(queue, absent, clients.orphans.due(), now);
}

/// Whether a step of a request took a guess that was wrong, or came behind one.
bool Schedule::is_void(const Step& step) const {
  const JobPtr job = queue.runs(step.request);
  return job && job->is_void(step);
}

/// Begin steps of the requests that may share some.
void Schedule::begin_shared(double now, Actions& out) {
  sharing.begin(
      now, [this](Job& job, Call call, double at) { return guessed.begin_alone(job, std::move(call), at); }, out);
}

/// The values of a request.
void Schedule::take_values(const Step& step, const Tensors& values, double now, Actions& out) {
  const JobPtr job = queue.runs(step.request);
  if (!job) return;
  deadlines.took(*job, step.phase, now);
  job->progress.moved(now);
  job->stand();
  job->over = step.step + 1;
  if (!role->generates()) {
    job->outputs = values;
    return finish(job, now, out);
  }
  const Tensor& tokens = values.begin()->second;
  bool goes_on = false;
  if (step.step < job->reached()) {
    const Tensor& known = job->drawn[step.step + 1 - job->prompt.size()];
    const auto one = tokens.elements<std::int64_t>(), other = known.elements<std::int64_t>();
    for (std::size_t row = 0; row < std::min(one.size(), other.size()); ++row)
      job->mismatches += one[row] != other[row];
  } else {
    take(*job, tokens, step.likely, out);
    const auto first = static_cast<std::uint64_t>(tokens.elements<std::int64_t>()[0]);
    goes_on = guessed.took(*job, step, first, now);
  }
  if (job->finished()) {
    finish(job, now, out);
  } else if (goes_on) {
    job->become(JobState::stepping);
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
  clients.drew(job, {job.ticket, number, fresh, job.finish, likely});
  if (job.finished() || number == 0 || role->ring().size() == 1) clients.flush_tokens(out);
}

/// Begin the steps that lead to the next token: one, maybe a shared one, parts of a prompt, or known ones.
void Schedule::begin(const JobPtr& job, double now, Actions& out) {
  if (sharing.serves(*job)) return sharing.add(job);
  job->step_begins(now);
  for (Call& call : job->calls()) out.push_back(guessed.begin_alone(*job, std::move(call), now));
}

/// Free the slots of requests that have ended while others computed with them.
void Schedule::let_go(Actions& out) {
  for (const JobPtr& job : sharing.freed()) {
    queue.free(*job);
    out.push_back(End{*job->number, false});
  }
}

/// All tokens are out: the slot is free for the next request while the devices report.
void Schedule::finish(const JobPtr& job, double now, Actions& out) {
  queue.report(job);
  job->progress.moved(now);
  job->reports = {role->ring().begin(), role->ring().end()};
  out.push_back(End{*job->number, true});
  open_waiting(now, out);
}

void Schedule::answer(const JobPtr& job, double now, Actions& out) {
  queue.end(job);
  clients.end(job, result_of(*job, *role, now), now, out);
}

void Schedule::fail(const JobPtr& job, const Error& error, double now, Actions& out) {
  clients.flush_tokens(out);
  if (job->state == JobState::waiting) {
    queue.end(job);
  } else if (sharing.end(job)) {
    queue.end(job, true);
  } else {
    for (const JobPtr& mate : sharing.of(*job->number)) sharing.over(*mate->number);
    let_go(out);
    queue.end(job);
    out.push_back(End{*job->number, false});
  }
  clients.end(job, {messages::Error{job->ticket, messages::problem_of(error)}, {}}, now, out);
  begin_shared(now, out);
  open_waiting(now, out);
}

}  // namespace partc::core
