#include "core/device/transfer.hpp"

#include <algorithm>
#include <utility>

#include "format/complaints.hpp"
#include "format/text.hpp"

namespace partc::core {
namespace {

/// Rows that go to a copy at once: a message takes as long with one as with a few, and steps wait for it.
constexpr std::uint64_t MIRRORED_ROWS = 8;
constexpr std::uint64_t PART_BYTES = 256 * 1024;
/// Answers that may be read at once.
constexpr std::size_t MOST_READING = 4096;

/// Rows that the steps from this one to the last have added to each sequence.
std::uint64_t rows_between(const Request& request, std::uint64_t step) {
  const Counts begins = request.position(step), ends = request.position(request.steps);
  std::uint64_t most = 0;
  for (std::size_t at = 0; at < ends.size(); ++at) {
    const std::uint64_t begin = at < begins.size() ? begins[at] : 0;
    if (ends[at] > begin) most = std::max(most, ends[at] - begin);
  }
  return most;
}

/// A message about some steps, without rows.
messages::Rows header_of(std::uint64_t epoch, std::uint64_t request, const std::string& submodule, std::uint64_t begin,
                         std::uint64_t end) {
  messages::Rows rows;
  rows.epoch = epoch;
  rows.request = request;
  rows.submodule = submodule;
  rows.begin = begin;
  rows.end = end;
  return rows;
}

/// (heads, d) of one position of one sequence: `heads` are all axes between the first and that of positions. What steps
/// rewrite as a whole is one row of one head.
Shape row_shape(const build::State& state) {
  std::uint64_t heads = 1, d = 1;
  const bool whole = build::is_rewritten(state);
  for (std::size_t axis = 1; axis < state.shape.size(); ++axis) {
    const std::uint64_t* size = std::get_if<std::uint64_t>(&state.shape[axis]);
    if (size == nullptr || (!whole && axis + 2 == state.shape.size())) continue;
    (whole || axis + 1 == state.shape.size() ? d : heads) *= *size;
  }
  return {heads, d};
}

std::uint64_t row_bytes(const build::State& state) {
  return bytes_of(row_shape(state), element_type(state.dtype)->bytes);
}

/// One part of the rows of some steps.
struct Part {
  std::string state;
  std::uint64_t row = 0, begin = 0, end = 0;
};

/// All parts; `begin` is empty for the first step. With `whole`, states that steps rewrite are the last ones: a single
/// row each, of any size.
std::vector<Part> parts_of(const std::vector<build::State>& states, const Counts& begin, const Counts& end,
                           bool whole) {
  std::vector<Part> parts;
  for (const build::State& state : states) {
    if (build::is_rewritten(state)) continue;
    const std::uint64_t most = std::max<std::uint64_t>(1, PART_BYTES / std::max<std::uint64_t>(1, row_bytes(state)));
    for (std::size_t row = 0; row < end.size(); ++row) {
      for (std::uint64_t first = begin.empty() ? 0 : begin[row]; first < end[row]; first += most) {
        parts.push_back({state.name, row, first, std::min(first + most, end[row])});
      }
    }
  }
  for (const build::State& state : states) {
    if (!whole || !build::is_rewritten(state)) continue;
    for (std::size_t row = 0; row < end.size(); ++row) parts.push_back({state.name, row, 0, 1});
  }
  return parts;
}

/// The state that rows belong to. Throws Error: there is none.
const build::State& state_of(const Role& role, const messages::Rows& rows) {
  const build::Submodule* const* module = role.submodules.find(rows.submodule);
  if (module != nullptr) {
    for (const build::State& state : (*module)->states) {
      if (state.name == rows.state) return state;
    }
  }
  throw refused(in_quotes(rows.submodule) + " has no state " + in_quotes(rows.state));
}

/// The rows of a part. Throws Error: they do not fit the state and the model.
Tensor checked(const messages::Rows& rows, const Frames& frames, const Role& role) {
  const build::State& state = state_of(role, rows);
  const messages::TensorSpec* spec = rows.values.size() == 1 ? &rows.values.front() : nullptr;
  if (spec == nullptr || spec->dtype != state.dtype || spec->shape.size() != 3) {
    throw refused("these are no rows of " + rows.state);
  }
  const std::uint64_t most = build::is_rewritten(state) ? 1 : role.model().max_sequence, count = spec->shape[0];
  bool fits = rows.row < rows.sequences && rows.sequences <= role.model().max_batch;
  fits = fits && count <= most && rows.position <= most - count;
  fits = fits && Shape(spec->shape.begin() + 1, spec->shape.end()) == row_shape(state);
  std::size_t bytes = 0;
  for (const Frame& frame : frames) bytes += frame.size;
  if (!fits || count * row_bytes(state) != bytes) {
    throw refused(list_text(spec->shape) + " at " + std::to_string(rows.position) + " are no rows of " + rows.state);
  }
  return to_tensor(join_frames(frames), spec->dtype, spec->shape);
}

}  // namespace

Transfer::Transfer(RolePtr role, Requests& requests, Links& links, double patience_s)
    : role_(role), requests_(requests), links_(links), patience_s_(patience_s), copies_(std::move(role)) {}

void Transfer::adopt(RolePtr role) {
  role_ = std::move(role);
  copies_.adopt(role_);
  sent_.clear();
  end();
}

void Transfer::close(std::uint64_t request) {
  copies_.close(request);
  sent_.erase_if([&](const auto& entry) { return entry.first.first == request; });
  fetches_.erase_if([&](const auto& entry) { return entry.first.first == request; });
}

void Transfer::begin(const Role& role, const messages::Prepare& message, double now, Actions& out) {
  if (message.epoch != epoch_) {
    forget();
    epoch_ = message.epoch;
    waiting_.erase_if([&](const auto& entry) { return entry.second.second.epoch != epoch_; });
  }
  for (const messages::Reached& reached : message.requests) {
    for (const std::string& submodule : role.running) {
      const bool runs = std::ranges::find(role_->running, submodule) != role_->running.end();
      const bool is_here = runs && requests_.request(reached.request) != nullptr;
      if (!is_here) fetch(reached, submodule, message, now, out);
    }
  }
}

bool Transfer::done() const {
  return std::ranges::all_of(fetches_, [](const auto& entry) { return entry.second.done(); });
}

Due Transfer::due() const {
  Due first;
  for (const auto& [key, fetch] : fetches_) {
    if (!fetch.done()) first = soonest({first, fetch.asked.expires(patience_s_)});
  }
  return first;
}

void Transfer::look(double now) {
  for (auto& [key, fetch] : fetches_) fetch.given_up = fetch.given_up || now >= fetch.asked.expires(patience_s_);
}

std::vector<messages::Held> Transfer::held() const {
  std::vector<messages::Held> found;
  for (const auto& [key, fetch] : fetches_) {
    if (fetch.counts()) found.push_back({key.first, key.second, fetch.have, fetch.rewritten});
  }
  return found;
}

void Transfer::came(const std::string& peer, const messages::Rows& rows, const Frames& frames, double now,
                    Actions& out) {
  if (rows.epoch == role_->epoch() && rows.parts != 0) return copies_.take(peer, rows, checked(rows, frames, *role_));
  Fetch* fetch = fetches_.find({rows.request, rows.submodule});
  if (fetch == nullptr || rows.epoch != epoch_ || rows.begin != fetch->have || rows.part != fetch->part) return;
  if (peer != fetch->holder || fetch->exact) return;
  const bool is_rewritten = rows.parts != 0 && build::is_rewritten(state_of(*role_, rows));
  if (rows.parts == 0 || rows.end < rows.begin || (rows.end == rows.begin && !is_rewritten)) {
    fetch->given_up = true;
    return;
  }
  const std::uint64_t slot = fetch->reached.slot;
  if (requests_.in_slot(slot).value_or(rows.request) != rows.request) return;  // its end has not been told of
  Tensor array = checked(rows, frames, *role_);
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

void Transfer::linked(const std::string& peer, Actions& out) {
  for (const auto& [key, fetch] : fetches_) {
    if (fetch.holder == peer && !fetch.done()) ask(fetch, out);
  }
}

void Transfer::reset(std::uint64_t slot) {
  begun_.erase(slot);
  fetches_.erase_if([&](const auto& entry) { return entry.second.reached.slot == slot; });
}

void Transfer::forget() {
  fetches_.clear();
  begun_.clear();
}

void Transfer::end() {
  forget();
  waiting_.clear();
}

void Transfer::wanted(const std::string& peer, const Origin& origin, const messages::Want& want, Actions& out) {
  // One that comes while very many are being answered is ignored: it is asked again with the next PREPARE.
  if (reading_.size() >= MOST_READING) return;
  const bool runs = std::ranges::find(role_->running, want.submodule) != role_->running.end();
  const Request* request = runs ? requests_.request(want.request) : nullptr;
  if (request == nullptr || !has(*request, want)) {
    if (request != nullptr && want.waits) {
      waiting_.set({peer, {want.request, want.submodule}}, {origin, want});
      return;
    }
    messages::Rows none = header_of(want.epoch, want.request, want.submodule, want.begin, want.begin);
    none.part = want.part;
    out.push_back(Send{origin, none, {}});
    return;
  }
  const std::uint64_t end = std::min(want.end != 0 ? want.end : request->steps, request->steps);
  const messages::Rows header = header_of(want.epoch, want.request, want.submodule, want.begin, end);
  read_out(origin, *request, header, want.part, !want.waits, out);
}

/// Whether the answer to a question can be given now: states that a step rewrites are those of one step; they can be
/// read between two steps, while that is the last.
bool Transfer::has(const Request& request, const messages::Want& want) const {
  if (want.waits || !role_->rewrites(want.submodule)) return request.steps > want.begin;
  const bool is_between = requests_.steps_in(request, want.submodule) == request.steps;
  const bool follows = request.steps != 0 && request.steps >= want.begin;
  return is_between && follows && (want.end == 0 || want.end == request.steps);
}

void Transfer::read(const Tensor& array, Actions& out) {
  auto [origin, rows] = std::move(reading_.front());
  reading_.pop_front();
  rows.values = {{rows.state, state_of(*role_, rows).dtype, array.shape}};
  out.push_back(Send{origin, std::move(rows), split_frames(array.bytes)});
}

void Transfer::stepped(Actions& out) {
  const auto waiting = std::exchange(waiting_, {});
  for (const auto& [key, question] : waiting) wanted(key.first, question.first, question.second, out);
}

void Transfer::mirror(Actions& out) {
  for (const auto& [submodule, keeper] : role_->mirrored) {
    for (const std::uint64_t number : requests_.numbers()) mirror(number, submodule, keeper, out);
  }
}

void Transfer::mirror(std::uint64_t number, const std::string& submodule, const std::string& keeper, Actions& out) {
  const Request* request = requests_.request(number);
  const std::uint64_t* known = sent_.find({number, submodule});
  const std::uint64_t sent = known == nullptr ? 0 : *known;
  if (request == nullptr || rows_between(*request, sent) < MIRRORED_ROWS) return;
  const std::optional<Origin> way = links_.way_to(keeper);
  if (!way) return links_.connect(keeper, out);
  sent_.set({number, submodule}, request->steps);
  read_out(*way, *request, header_of(role_->epoch(), number, submodule, sent, request->steps), {}, false, out);
}

/// Have the rows of some steps read, which is answered by `read`: all parts of them, or only one. With `whole` the
/// states that steps rewrite are read as well.
void Transfer::read_out(const Origin& way, const Request& request, const messages::Rows& header,
                        std::optional<std::uint64_t> only, bool whole, Actions& out) {
  const Counts ends = request.position(header.end);
  const std::vector<build::State>& states = role_->submodules.at(header.submodule)->states;
  const std::vector<Part> parts = parts_of(states, request.position(header.begin), ends, whole);
  for (std::uint64_t at = 0; at < parts.size(); ++at) {
    if (only && *only != at) continue;
    const Part& part = parts[at];
    messages::Rows rows = header;
    rows.part = at;
    rows.parts = parts.size();
    rows.sequences = ends.size();
    rows.state = part.state;
    rows.row = part.row;
    rows.position = part.begin;
    reading_.emplace_back(way, std::move(rows));
    out.push_back(ReadRows{header.submodule, request.slot, part.state, part.row, part.begin, part.end});
  }
}

void Transfer::fetch(const messages::Reached& reached, const std::string& submodule, const messages::Prepare& message,
                     double now, Actions& out) {
  const Key key{reached.request, submodule};
  const Fetch* known = fetches_.find(key);
  const std::vector<build::State>& states = role_->submodules.at(submodule)->states;
  const bool rewritten = role_->rewrites(submodule);
  const bool has_rows = std::ranges::any_of(states, [](const build::State& state) { return !build::is_rewritten(state); });
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
    fresh.given_up = fresh.holder.empty() || fresh.holder == role_->device();
    fetches_.set(key, fresh);
    if (fresh.holder == role_->device()) from_copy(fetches_.at(key), out);
  }
  Fetch& fetch = fetches_.at(key);
  if (role_->keeps || (fetch.waits && rewritten && !has_rows)) {
    fetch.given_up = true;  // what a first step keeps goes nowhere; whole states do when nothing runs any more
  } else if (states.empty()) {
    fetch.have = reached.step;  // there is nothing to fetch
  }
  if (!fetch.done()) ask(fetch, out);
}

void Transfer::ask(const Fetch& fetch, Actions& out) {
  const std::optional<Origin> way = links_.way_to(fetch.holder);
  if (!way) return links_.connect(fetch.holder, out);
  const messages::Want want{epoch_,    fetch.reached.request, fetch.submodule, fetch.have,
                            fetch.end, fetch.part,            fetch.waits};
  out.push_back(Send{*way, want, {}});
}

/// The states of a slot begin anew before the first rows of a request that has not begun here.
void Transfer::take_slot(std::uint64_t slot, std::uint64_t request, std::uint64_t sequences, Actions& out) {
  const std::uint64_t* begun = begun_.find(slot);
  if (requests_.request(request) != nullptr || (begun != nullptr && *begun == request)) return;
  begun_.set(slot, request);
  Dims dims = role_->dims();
  dims.set("batch", sequences);
  out.push_back(Reset{slot, std::move(dims)});
}

/// Write the rows of which this device keeps a copy.
void Transfer::from_copy(Fetch& fetch, Actions& out) {
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
