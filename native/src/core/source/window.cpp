#include "core/source/window.hpp"

#include "core/step.hpp"

namespace partc::core {

bool Window::is_full() const { return guesses.size() >= MOST_GUESSED; }

std::optional<Draft> Window::draft(const std::set<std::uint64_t>& ends) {
  Counts before;
  for (const Guess& guess : guesses) before.push_back(guess.token);
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
  return right;
}

void Window::empty() {
  guesses.clear();
  branch = 0;
}

}  // namespace partc::core
