#include "core/source/guessed_steps.hpp"

#include <algorithm>
#include <limits>

namespace partc::core {

void GuessedSteps::begin(double now, Actions& out) {
  if (!due || now < *due) return;
  due.reset();
  while (guessing.goes() && under_way() < guessing.most()) {
    const auto found = best_draft();
    if (!found) return;
    const double leaves = std::max(now, last_started() + guessing.pace_s());
    if (!guessing.has_time(true_since(), leaves)) return;
    if (now < leaves) {
      due = leaves;
      return;
    }
    const auto& [job, guess] = *found;
    guessing.guessed(now);
    auto [step, inputs] = job->guess(guess.token, guess.chance, now);
    out.push_back(Begin{std::move(step), std::move(inputs)});
  }
}

bool GuessedSteps::took(Job& job, const Step& step, std::uint64_t token, double now) {
  if (!job.window) return false;
  Window& window = *job.window;
  guessing.scored(window.drafts.next({}), token, now, window.has(token));
  if (step.phase == "decode") {
    guessing.came(job.started, now, step.busy_s, window.is_sure);
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

/// When the last of them began.
double GuessedSteps::last_started() const {
  double last = -std::numeric_limits<double>::infinity();
  for (const JobPtr& job : queue_.stepping()) last = std::max(last, job->last_started());
  return last;
}

/// When the first of those began whose token a true step may follow; infinity: none may.
double GuessedSteps::true_since() const {
  double first = std::numeric_limits<double>::infinity();
  for (const JobPtr& job : queue_.stepping()) {
    if (!job->window || !job->window->counts_on()) first = std::min(first, job->started);
  }
  return first;
}

/// The draft that is right most often, of the requests whose steps are computed alone.
std::optional<std::pair<JobPtr, Guess>> GuessedSteps::best_draft() const {
  std::optional<std::pair<JobPtr, Guess>> best;
  for (const JobPtr& job : queue_.stepping()) {
    if (!job->window || !job->may_guess() || sharing_.of(*job->number).size() > 1) continue;
    const std::optional<Draft> draft = job->window->draft(job->stop);
    if (!draft) continue;
    const double chance = job->window->chance() * guessing.chance(*draft);
    if (chance >= LEAST_CHANCE && (!best || chance > best->second.chance)) best = {job, {draft->token, 0.0, chance}};
  }
  return best;
}

}  // namespace partc::core
