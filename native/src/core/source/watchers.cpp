#include "core/source/watchers.hpp"

#include <algorithm>

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"

namespace partc::core {
namespace {

constexpr std::size_t MOST = 64;
constexpr double LEAST_PERIOD_S = 0.1;
/// How long the answers of a round are waited for.
constexpr double ROUND_S = 1.0;

}  // namespace

void Watchers::watch(const Origin& origin, const messages::Watch& watch, double now) {
  all_.erase({origin, watch.ticket});
  if (watch.period_s == 0.0) return;
  if (all_.size() >= MOST) throw refused(std::to_string(MOST) + " clients watch already", "", "end one of them");
  is_watched = true;
  all_.set({origin, watch.ticket}, {origin, watch.ticket, std::max(LEAST_PERIOD_S, watch.period_s), now});
}

void Watchers::left(const Origin& origin) {
  all_.erase_if([&](const auto& entry) { return entry.first.first == origin; });
}

Due Watchers::due() const {
  if (asked_at_) return *asked_at_ + ROUND_S;
  Due first;
  for (const auto& [key, watcher] : all_) first = soonest({first, watcher.due});
  return first;
}

bool Watchers::has_ended() {
  if (!all_.empty() || !is_watched) return false;
  is_watched = false;
  asked_at_.reset();
  told.clear();
  return true;
}

bool Watchers::begins(const std::set<std::string>& devices, double now) {
  if (asked_at_ || !due() || now < *due()) return false;
  asked_at_ = now;
  awaited_ = devices;
  for (auto& [device, each] : told) each.answer_s.reset();
  return true;
}

void Watchers::sensed(const std::string& device, const messages::Vitals& vitals, double now) {
  told.set(device, {vitals, asked_at_ ? std::optional(now - *asked_at_) : std::nullopt, now});
  awaited_.erase(device);
}

std::vector<Watcher> Watchers::answered(double now) {
  std::vector<Watcher> found;
  if (!asked_at_ || (!awaited_.empty() && now < *asked_at_ + ROUND_S)) return found;
  asked_at_.reset();
  for (auto& [key, watcher] : all_) {
    if (now < watcher.due) continue;
    watcher.due = std::max(watcher.due + watcher.period_s, now);
    found.push_back(watcher);
  }
  return found;
}

}  // namespace partc::core
