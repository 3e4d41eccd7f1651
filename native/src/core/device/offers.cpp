#include "core/device/offers.hpp"

#include <algorithm>
#include <utility>

#include "core/device/rows.hpp"

namespace partc::core {
namespace {

/// Rows that go to a copy at once: a message takes as long with one as with a few, and steps wait for it.
constexpr std::uint64_t MIRRORED_ROWS = 8;
/// Answers that may be read at once.
constexpr std::size_t MOST_READING = 4096;

/// Rows that the steps from this one to the last that stays have added to each sequence.
std::uint64_t rows_between(const Request& request, std::uint64_t step) {
  const Counts begins = request.position(step), ends = request.position(request.settled());
  std::uint64_t most = 0;
  for (std::size_t at = 0; at < ends.size(); ++at) {
    const std::uint64_t begin = at < begins.size() ? begins[at] : 0;
    if (ends[at] > begin) most = std::max(most, ends[at] - begin);
  }
  return most;
}

/// Steps of which rows are told: where others follow meanwhile, those that are not taken back. An end that an earlier
/// part told of stays.
std::uint64_t told(const Request& request, const messages::Want& want) {
  return want.waits && want.end == 0 ? request.settled() : request.steps;
}

}  // namespace

void Offers::adopt(RolePtr role) {
  role_ = std::move(role);
  sent_.clear();
}

void Offers::close(std::uint64_t request) {
  sent_.erase_if([&](const auto& entry) { return entry.first.first == request; });
}

void Offers::begin(std::uint64_t epoch) {
  waiting_.erase_if([&](const auto& entry) { return entry.second.second.epoch != epoch; });
}

void Offers::wanted(const std::string& peer, const Origin& origin, const messages::Want& want, Actions& out) {
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
  const std::uint64_t end = std::min(want.end != 0 ? want.end : told(*request, want), request->steps);
  const messages::Rows header = header_of(want.epoch, want.request, want.submodule, want.begin, end);
  read_out(origin, *request, header, want.part, !want.waits, out);
}

/// Whether the answer to a question can be given now: states that a step rewrites are those of one step; they can be
/// read between two steps, while that is the last.
bool Offers::has(const Request& request, const messages::Want& want) const {
  if (want.waits) return told(request, want) > want.begin;
  if (!role_->rewrites(want.submodule)) return request.steps > want.begin;
  const bool is_between = requests_.steps_in(request, want.submodule) == request.steps;
  const bool follows = request.steps != 0 && request.steps >= want.begin;
  return is_between && follows && (want.end == 0 || want.end == request.steps);
}

void Offers::read(const Tensor& array, Actions& out) {
  auto [origin, rows] = std::move(reading_.front());
  reading_.pop_front();
  rows.values = {{rows.state, state_of(*role_, rows).dtype, array.shape}};
  out.push_back(Send{origin, std::move(rows), split_frames(array.bytes)});
}

void Offers::stepped(Actions& out) {
  const auto waiting = std::exchange(waiting_, {});
  for (const auto& [key, question] : waiting) wanted(key.first, question.first, question.second, out);
}

void Offers::mirror(Actions& out) {
  for (const auto& [submodule, keeper] : role_->mirrored) {
    for (const std::uint64_t number : requests_.numbers()) mirror(number, submodule, keeper, out);
  }
}

void Offers::mirror(std::uint64_t number, const std::string& submodule, const std::string& keeper, Actions& out) {
  const Request* request = requests_.request(number);
  const std::uint64_t* known = sent_.find({number, submodule});
  const std::uint64_t sent = known == nullptr ? 0 : *known;
  if (request == nullptr || rows_between(*request, sent) < MIRRORED_ROWS) return;
  const std::optional<Origin> way = links_.way_to(keeper);
  if (!way) return links_.connect(keeper, out);
  sent_.set({number, submodule}, request->settled());
  read_out(*way, *request, header_of(role_->epoch(), number, submodule, sent, request->settled()), {}, false, out);
}

/// Have the rows of some steps read, which is answered by `read`: all parts of them, or only one. With `whole` the
/// states that steps rewrite are read as well.
void Offers::read_out(const Origin& way, const Request& request, const messages::Rows& header,
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

}  // namespace partc::core
