#include "core/source/guessed_steps.hpp"

#include <algorithm>
#include <limits>

namespace partc::core {

void GuessedSteps::begin(double now, Actions& out) {
  if (!due || now < *due) return;
  due.reset();
  while (guessing.goes() && under_way() < guessing.most()) {
    const auto found = best_draft(now);
    if (!found) return;
    const double leaves = std::max(now, follows_at()), until = expected();
    if (!guessing.has_time(until, leaves)) return;
    if (now < leaves) {
      due = leaves;
      return;
    }
    const auto& [job, guess] = *found;
    Call call = job->guess(guess);
    guessing.guessed(now);
    out.push_back(with_further(*job, std::move(call), now, until - now));
  }
}

Begin GuessedSteps::begin_alone(Job& job, Call call, double now) {
  Begin found = with_further(job, std::move(call), now, std::numeric_limits<double>::infinity());
  if (job.window) job.window->awaited_tokens = found.step.rows();
  return found;
}

void GuessedSteps::timed(const Step& step) {
  if (step.phase == "decode" && step.busy_s && step.others.empty()) guessing.timed(step.rows(), *step.busy_s);
}

bool GuessedSteps::took(Job& job, const Step& step, std::uint64_t token, double now) {
  if (!job.window) return false;
  Window& window = *job.window;
  guessing.scored(window.drafts.next({}), token, now, window.has(token));
  if (step.phase == "decode") {
    if (window.is_sure) guessing.came(job.started, now, window.awaited_tokens);
    const auto [left_s, arrived_s] = window.apart(job.started, now);
    if (!window.is_sure) guessing.apart(left_s, arrived_s);
  }
  due = now;
  return job.compare(token);
}

/// Steps under way, of all requests.
std::uint64_t GuessedSteps::under_way() const {
  std::uint64_t count = 0;
  for (const JobPtr& job : queue_.running()) count += job->under_way();
  return count;
}

/// When a guess may follow the last steps of all requests.
double GuessedSteps::follows_at() const {
  double last = -std::numeric_limits<double>::infinity();
  for (const JobPtr& job : queue_.stepping()) {
    last = std::max(last, job->last_started() + guessing.pace_of(job->last_tokens()));
  }
  return last;
}

/// When the first token is expected that a true step may follow; infinity: none may.
double GuessedSteps::expected() const {
  double first = std::numeric_limits<double>::infinity();
  for (const JobPtr& job : queue_.stepping()) {
    if (job->window && job->window->counts_on()) continue;
    first = std::min(first, job->started + guessing.lap_of(job->awaited_tokens()));
  }
  return first;
}

/// The draft that is right most often, of the requests whose steps are computed alone.
std::optional<std::pair<JobPtr, Guess>> GuessedSteps::best_draft(double now) const {
  std::optional<std::pair<JobPtr, Guess>> best;
  for (const JobPtr& job : queue_.stepping()) {
    if (!job->window || job->may_guess() == 0 || sharing_.of(*job->number).size() > 1) continue;
    const std::optional<Draft> draft = job->window->draft(job->stop);
    if (!draft) continue;
    const double chance = job->window->chance() * guessing.chance(*draft);
    if (chance >= LEAST_CHANCE && (!best || chance > best->second.chance)) best = {job, {draft->token, now, chance}};
  }
  return best;
}

/// The begin of a step of one token, with further ones that are guessed, as far as its stages have time.
Begin GuessedSteps::with_further(Job& job, Call call, double now, double time_s) {
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  if (!job.window) return begin_of(std::move(calls));
  for (const Guess& guess : further(job, now, time_s)) {
    guessing.guessed(now);
    calls.push_back(job.guess(guess));
  }
  job.window->last_tokens = calls.size();
  return begin_of(std::move(calls));
}

/// The guesses that a step takes behind its token: as many as bring most tokens in a time, none beside others.
///
/// Rows of other requests are worth more: each of them brings a token.
std::vector<Guess> GuessedSteps::further(Job& job, double now, double time_s) const {
  const std::uint64_t most = std::min(job.may_guess(), guessing.most_further());
  if (most == 0 || queue_.running().size() > 1 || !guessing.goes()) return {};
  std::vector<Guess> found;
  std::vector<double> chances;
  const double before = job.window->chance();
  for (double chance = before; found.size() < most;) {
    const std::optional<Draft> draft = job.window->draft(job.stop, found);
    if (!draft || (chance *= guessing.chance(*draft)) < LEAST_CHANCE) break;
    found.push_back({draft->token, now, chance, false});
    chances.push_back(chance / before);
  }
  found.resize(guessing.tokens(chances, time_s) - 1);
  return found;
}

}  // namespace partc::core
