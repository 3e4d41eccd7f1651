#include "core/source/window.hpp"

#include <algorithm>

#include "core/step.hpp"

namespace partc::core {

std::uint64_t Window::room() const { return MOST_GUESSED - guesses.size(); }

std::uint64_t Window::steps() const {
  return static_cast<std::uint64_t>(std::ranges::count_if(guesses, [](const Guess& guess) { return guess.leads; }));
}

std::optional<Draft> Window::draft(const std::set<std::uint64_t>& ends, const std::vector<Guess>& behind) {
  Counts before;
  for (const Guess& guess : guesses) before.push_back(guess.token);
  for (const Guess& guess : behind) before.push_back(guess.token);
  std::optional<Draft> found = drafts.next(before);
  if (found && ends.contains(found->token)) found.reset();
  return found;
}

void Window::add(const Guess& guess) {
  guesses.push_back(guess);
  ++drafted;
}

std::pair<double, double> Window::apart(double started, double now) {
  const auto [left, arrived] = std::exchange(before_, {started, now});
  return {started - left, now - arrived};
}

std::optional<Guess> Window::compare(std::uint64_t token) {
  drafts.add(token);
  if (!has(token)) {
    guesses.clear();
    return {};
  }
  const Guess right = guesses.front();
  guesses.pop_front();
  is_sure = false;
  ++accepted;
  if (right.leads) {
    const auto next = std::ranges::find_if(guesses, [](const Guess& guess) { return guess.leads; });
    awaited_tokens = 1 + static_cast<std::uint64_t>(next - guesses.begin());
  }
  return right;
}

void Window::step_begins() {
  is_sure = true;
  awaited_tokens = last_tokens = 1;
}

void Window::empty() {
  guesses.clear();
  branch = 0;
}

}  // namespace partc::core
