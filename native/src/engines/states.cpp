#include "engines/states.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "engines/new_tensor.hpp"
#include "errors.hpp"

namespace partc::engines {
namespace {

std::uint64_t product(Shape::const_iterator begin, Shape::const_iterator end) {
  return std::accumulate(begin, end, std::uint64_t{1}, std::multiplies<>());
}

/** The bytes of a state with these sizes. */
std::uint64_t size_of(const build::State& state, const Dims& dims) {
  const build::TensorType buffer = build::buffer_of(state);
  return bytes_of(evaluate_shape(buffer.shape, dims), element_type(buffer.dtype)->bytes);
}

/** One sequence as positions, heads and d, and where those lie. */
struct Sequence {
  std::uint64_t positions, heads, d;
  std::uint64_t begin;  // bytes before it in the state
  std::uint64_t element_bytes;
  bool in_panels;

  std::uint64_t at(std::uint64_t position, std::uint64_t head, std::uint64_t place) const {
    if (!in_panels) return begin + ((head * positions + position) * d + place) * element_bytes;
    const std::uint64_t panels = (positions + PANEL - 1) / PANEL;
    const std::uint64_t panel = head * panels + position / PANEL;
    return begin + ((panel * d + place) * PANEL + position % PANEL) * element_bytes;
  }
};

Sequence sequence(const StateView& view, std::uint64_t row) {
  const Shape& sizes = view.sizes;
  const std::string& name = view.declared->name;
  if (row >= sizes[0])
    throw run_error("there is no sequence " + std::to_string(row) + " of " + std::to_string(sizes[0]), name);
  const std::uint64_t begin = row * product(sizes.begin() + 1, sizes.end()) * view.element_bytes;
  const bool in_panels = view.declared->layout == "panels";
  Shape plain = sizes;
  if (in_panels) plain = {sizes[0], sizes[1], std::get<std::uint64_t>(view.declared->shape[2]), sizes[3]};
  const Shape held = row_sizes(*view.declared, plain);
  return {held[0], held[1], held[2], begin, view.element_bytes, in_panels};
}

void check_places(const Sequence& held, const StateView& view, std::uint64_t begin, std::uint64_t end) {
  if (begin <= end && end <= held.positions) return;
  throw run_error("rows " + std::to_string(begin) + " to " + std::to_string(end) + " are none of its " +
                      std::to_string(held.positions),
                  view.declared->name);
}

/** Calls copy(element of the state, element of the rows, bytes) for all that lies side by side in both. */
template <class Byte, class Copy>
void each(const Sequence& held, std::byte* data, std::uint64_t begin, std::uint64_t end, Byte* rows, Copy copy) {
  const std::uint64_t width = held.in_panels ? 1 : held.d;
  for (std::uint64_t position = begin; position < end; ++position) {
    for (std::uint64_t head = 0; head < held.heads; ++head) {
      for (std::uint64_t place = 0; place < held.d; place += width) {
        copy(data + held.at(position, head, place), rows, width * held.element_bytes);
        rows += width * held.element_bytes;
      }
    }
  }
}

}  // namespace

Shape row_sizes(const build::State& state, const Shape& sizes) {
  if (build::is_rewritten(state) || sizes.size() < 3) return {1, 1, product(sizes.begin() + 1, sizes.end())};
  const auto last = sizes.end() - 2;
  return {last[0], product(sizes.begin() + 1, last), last[1]};
}

States::States(Dims largest, std::uint64_t slots) : largest_(std::move(largest)), dims_(slots, largest_) {}

void States::add(const build::Submodule& submodule) {
  std::uint64_t bytes = 0;
  for (const build::State& state : submodule.states) bytes += aligned(size_of(state, largest_));
  const std::lock_guard lock(changing_);
  for (std::uint64_t slot = 0; slot < dims_.size(); ++slot) {
    Room& room = rooms_[{submodule.name, slot}];
    room.pages = Pages(bytes);
    place(room, submodule, dims_[slot]);
  }
  declared_[submodule.name] = &submodule;
}

void States::remove(const std::string& submodule) {
  const std::lock_guard lock(changing_);
  declared_.erase(submodule);
  for (std::uint64_t slot = 0; slot < dims_.size(); ++slot) rooms_.erase({submodule, slot});
}

void States::reset(std::uint64_t slot, const Dims& dims) {
  const std::lock_guard lock(changing_);
  dims_.at(slot) = dims;
  for (const auto& [name, submodule] : declared_) {
    Room& room = rooms_.at({name, slot});
    room.pages.clear();
    place(room, *submodule, dims);
  }
}

void States::place(Room& room, const build::Submodule& submodule, const Dims& dims) const {
  room.views.clear();
  std::uint64_t start = 0;
  for (const build::State& state : submodule.states) {
    const Shape sizes = evaluate_shape(build::buffer_of(state).shape, dims);
    const std::uint64_t room_bytes = size_of(state, largest_), width = element_type(state.dtype)->bytes;
    if (bytes_of(sizes, width) > room_bytes)
      throw run_error("a request is larger than the build allows", state.name, "", "bug");
    room.views.push_back({&state, room.pages.data() + start, sizes, width});
    start += aligned(room_bytes);
  }
}

std::vector<StateView> States::of(const std::string& submodule, std::uint64_t slot) const {
  const std::lock_guard lock(changing_);
  return rooms_.at({submodule, slot}).views;
}

const StateView& States::find(const std::string& submodule, std::uint64_t slot, const std::string& state) const {
  const std::lock_guard lock(changing_);
  if (const auto room = rooms_.find({submodule, slot}); room != rooms_.end()) {
    for (const StateView& view : room->second.views)
      if (view.declared->name == state) return view;
  }
  throw run_error("no state '" + state + "' is loaded", submodule, "", "bug");
}

Tensor States::read(const std::string& submodule, std::uint64_t slot, const std::string& state, std::uint64_t row,
                    std::uint64_t begin, std::uint64_t end) const {
  return rows_of(find(submodule, slot, state), row, begin, end);
}

void States::write(const std::string& submodule, std::uint64_t slot, const std::string& state, std::uint64_t row,
                   std::uint64_t begin, const Tensor& rows) {
  put_rows(find(submodule, slot, state), row, begin, rows);
}

Tensor rows_of(const StateView& view, std::uint64_t row, std::uint64_t begin, std::uint64_t end) {
  const Sequence held = sequence(view, row);
  check_places(held, view, begin, end);
  NewTensor rows(*element_type(view.declared->dtype), {end - begin, held.heads, held.d});
  each(held, view.data, begin, end, rows.data(),
       [](const std::byte* inside, std::byte* outside, std::uint64_t bytes) { std::memcpy(outside, inside, bytes); });
  return rows.take();
}

Runs runs_of(const StateView& view, std::uint64_t row, std::uint64_t begin, std::uint64_t count) {
  const Sequence held = sequence(view, row);
  if (count > held.positions || begin > held.positions - count) check_places(held, view, begin, begin + count);
  Runs runs{{}, count * held.d * held.element_bytes, {1, held.heads, count, held.d}};
  for (std::uint64_t head = 0; head < held.heads; ++head) runs.offsets.push_back(held.at(begin, head, 0));
  return runs;
}

void put_rows(const StateView& view, std::uint64_t row, std::uint64_t begin, const Tensor& rows) {
  const Sequence held = sequence(view, row);
  const std::uint64_t count = rows.shape.empty() ? 0 : rows.shape[0];
  if (count > held.positions || begin > held.positions - count) check_places(held, view, begin, begin + count);
  const Shape expected{count, held.heads, held.d};
  const ElementType* type = element_type(view.declared->dtype);
  if (rows.shape != expected || rows.type->held != type->held) {
    throw run_error("expected rows " + type_text(type->held, expected) + ", found " +
                        type_text(rows.type->held, rows.shape),
                    view.declared->name);
  }
  each(held, view.data, begin, begin + count, rows.bytes.data,
       [](std::byte* inside, const std::byte* outside, std::uint64_t bytes) { std::memcpy(inside, outside, bytes); });
}

}  // namespace partc::engines
