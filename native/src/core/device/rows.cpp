#include "core/device/rows.hpp"

#include <algorithm>

#include "format/complaints.hpp"
#include "format/text.hpp"

namespace partc::core {
namespace {

constexpr std::uint64_t PART_BYTES = 256 * 1024;

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

}  // namespace

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

const build::State& state_of(const Role& role, const messages::Rows& rows) {
  const build::Submodule* const* module = role.submodules.find(rows.submodule);
  if (module != nullptr) {
    for (const build::State& state : (*module)->states) {
      if (state.name == rows.state) return state;
    }
  }
  throw refused(in_quotes(rows.submodule) + " has no state " + in_quotes(rows.state));
}

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

}  // namespace partc::core
