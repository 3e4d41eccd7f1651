#include "core/device/fetches.hpp"

#include <algorithm>

#include "core/device/rows.hpp"

namespace partc::core {

void Fetches::close(std::uint64_t request) {
  fetches_.erase_if([&](const auto& entry) { return entry.first.first == request; });
}

void Fetches::begin(const Role& next, const messages::Prepare& message, double now, Actions& out) {
  if (message.epoch != epoch_) {
    forget();
    epoch_ = message.epoch;
  }
  for (const messages::Reached& reached : message.requests) {
    for (const std::string& submodule : next.running) {
      const bool runs = std::ranges::find(role->running, submodule) != role->running.end();
      const bool is_here = runs && requests_.request(reached.request) != nullptr;
      if (!is_here) fetch(reached, submodule, message, now, out);
    }
  }
}

bool Fetches::done() const {
  return std::ranges::all_of(fetches_, [](const auto& entry) { return entry.second.done(); });
}

Due Fetches::due() const {
  Due first;
  for (const auto& [key, fetch] : fetches_) {
    if (!fetch.done()) first = soonest({first, fetch.asked.expires(patience_s_)});
  }
  return first;
}

void Fetches::look(double now) {
  for (auto& [key, fetch] : fetches_) fetch.given_up = fetch.given_up || now >= fetch.asked.expires(patience_s_);
}

std::vector<messages::Held> Fetches::held() const {
  std::vector<messages::Held> found;
  for (const auto& [key, fetch] : fetches_) {
    if (fetch.counts()) found.push_back({key.first, key.second, fetch.have, fetch.rewritten});
  }
  return found;
}

void Fetches::came(const std::string& peer, const messages::Rows& rows, const Frames& frames, double now,
                   Actions& out) {
  Fetch* fetch = fetches_.find({rows.request, rows.submodule});
  if (fetch == nullptr || rows.epoch != epoch_ || rows.begin != fetch->have || rows.part != fetch->part) return;
  if (peer != fetch->holder || fetch->exact) return;
  const bool is_rewritten = rows.parts != 0 && build::is_rewritten(state_of(*role, rows));
  if (rows.parts == 0 || rows.end < rows.begin || (rows.end == rows.begin && !is_rewritten)) {
    fetch->given_up = true;
    return;
  }
  const std::uint64_t slot = fetch->reached.slot;
  if (requests_.in_slot(slot).value_or(rows.request) != rows.request) return;  // its end has not been told of
  Tensor array = checked(rows, frames, *role);
  take_slot(slot, rows.request, rows.sequences, out);
  out.push_back(WriteRows{rows.submodule, slot, rows.state, rows.row, rows.position, std::move(array)});
  fetch->asked.moved(now);
  fetch->part = rows.part + 1;
  fetch->end = rows.end;
  if (fetch->part == rows.parts) {
    fetch->have = rows.end;
    fetch->part = fetch->end = 0;
    fetch->exact = is_rewritten;
  }
  if (!fetch->done()) ask(*fetch, out);
}

void Fetches::linked(const std::string& peer, Actions& out) {
  for (const auto& [key, fetch] : fetches_) {
    if (fetch.holder == peer && !fetch.done()) ask(fetch, out);
  }
}

void Fetches::reset(std::uint64_t slot) {
  begun_.erase(slot);
  fetches_.erase_if([&](const auto& entry) { return entry.second.reached.slot == slot; });
}

void Fetches::forget() {
  fetches_.clear();
  begun_.clear();
}

void Fetches::fetch(const messages::Reached& reached, const std::string& submodule, const messages::Prepare& message,
                    double now, Actions& out) {
  const Key key{reached.request, submodule};
  const Fetch* known = fetches_.find(key);
  const std::vector<build::State>& states = role->submodules.at(submodule)->states;
  const bool rewritten = role->rewrites(submodule);
  const bool has_rows =
      std::ranges::any_of(states, [](const build::State& state) { return !build::is_rewritten(state); });
  if (known == nullptr || known->reached != reached || known->waits == message.stands_still) {
    const std::string* holder = message.holders.find(submodule);
    Fetch fresh;
    fresh.reached = reached;
    fresh.submodule = submodule;
    fresh.holder = holder == nullptr ? "" : *holder;
    fresh.waits = !message.stands_still;
    fresh.asked.since = now;
    fresh.have = known == nullptr ? 0 : known->have;
    fresh.rewritten = rewritten;
    fresh.given_up = fresh.holder.empty() || fresh.holder == role->device();
    fetches_.set(key, fresh);
    if (fresh.holder == role->device()) from_copy(fetches_.at(key), out);
  }
  Fetch& fetch = fetches_.at(key);
  if (role->keeps || (fetch.waits && rewritten && !has_rows)) {
    fetch.given_up = true;  // what a first step keeps goes nowhere; whole states do when nothing runs any more
  } else if (states.empty()) {
    fetch.have = reached.step;  // there is nothing to fetch
  }
  if (!fetch.done()) ask(fetch, out);
}

void Fetches::ask(const Fetch& fetch, Actions& out) {
  const std::optional<Origin> way = links_.way_to(fetch.holder);
  if (!way) return links_.connect(fetch.holder, out);
  // Where requests stand still rows are needed up to a step that is known: behind it there may be guesses.
  const std::uint64_t known = fetch.waits || fetch.rewritten ? 0 : fetch.reached.step;
  const std::uint64_t end = fetch.end != 0 ? fetch.end : known;
  const messages::Want want{epoch_, fetch.reached.request, fetch.submodule, fetch.have, end, fetch.part, fetch.waits};
  out.push_back(Send{*way, want, {}});
}

/// The states of a slot begin anew before the first rows of a request that has not begun here.
void Fetches::take_slot(std::uint64_t slot, std::uint64_t request, std::uint64_t sequences, Actions& out) {
  const std::uint64_t* begun = begun_.find(slot);
  if (requests_.request(request) != nullptr || (begun != nullptr && *begun == request)) return;
  begun_.set(slot, request);
  Dims dims = role->dims();
  dims.set("batch", sequences);
  out.push_back(Reset{slot, std::move(dims)});
}

/// Write the rows of which this device keeps a copy.
void Fetches::from_copy(Fetch& fetch, Actions& out) {
  const std::uint64_t request = fetch.reached.request, slot = fetch.reached.slot;
  const Copy* copy = copies_.of(request, fetch.submodule);
  if (copy == nullptr || std::min(copy->have, fetch.reached.step) == 0) return;  // the slot may be another request's
  fetch.have = std::min(copy->have, fetch.reached.step);
  take_slot(slot, request, copy->sequences, out);
  copy->for_each([&](const std::string& state, std::uint64_t row, Tensor rows) {
    out.push_back(WriteRows{fetch.submodule, slot, state, row, 0, std::move(rows)});
  });
}

}  // namespace partc::core
