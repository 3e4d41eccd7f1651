#include "core/device/copies.hpp"

#include <algorithm>

namespace partc::core {

void Copy::take(const messages::Rows& rows, const Tensor& array, std::uint64_t most) {
  if (rows.begin != have || rows.part != part_) return;
  const std::uint64_t count = array.shape.front();
  const std::uint64_t row_bytes = count == 0 ? 0 : array.bytes.size / count;
  Kept& kept = rows_[{rows.state, rows.row}];
  if (kept.bytes.empty()) {
    kept.bytes.assign(most * row_bytes, '\0');
    kept.like = array;
    kept.like.bytes = {};
  }
  if (count != 0) array.bytes.text().copy(kept.bytes.data() + rows.position * row_bytes, array.bytes.size);
  kept.end = rows.position + count;
  sequences = rows.sequences;
  part_ = rows.part + 1;
  if (part_ == rows.parts) {
    have = rows.end;
    part_ = 0;
  }
}

void Copy::for_each(const std::function<void(const std::string&, std::uint64_t, Tensor)>& act) const {
  for (const auto& [key, kept] : rows_) {
    Tensor array = kept.like;
    array.shape.front() = kept.end;
    const std::uint64_t bytes = bytes_of(array.shape, array.type->bytes);
    array.bytes = Frame::copy(std::string_view(kept.bytes).substr(0, bytes));
    act(key.first, key.second, std::move(array));
  }
}

void Copies::take(const std::string& owner, const messages::Rows& rows, const Tensor& array) {
  const std::set<std::string>* running = role_->all_running.find(owner);
  if (running == nullptr || !running->contains(rows.submodule)) return;
  const std::string* keeper = role_->placement.mirrors.find(rows.submodule);
  if (rows.epoch != role_->epoch() || keeper == nullptr || *keeper != role_->device()) return;
  if (role_->rewrites(rows.submodule)) return;
  copies_[{rows.request, rows.submodule}].take(rows, array, role_->model().max_sequence);
  forget_oldest();
}

/// Keep no more requests than there are slots: the end of one may have got lost.
void Copies::forget_oldest() {
  std::set<std::uint64_t> numbers;
  for (const auto& [key, copy] : copies_) numbers.insert(key.first);
  while (numbers.size() > role_->model().max_requests) close(numbers.extract(numbers.begin()).value());
}

void Copies::close(std::uint64_t request) {
  copies_.erase_if([&](const auto& entry) { return entry.first.first == request; });
}

void Copies::adopt(RolePtr role) {
  role_ = std::move(role);
  copies_.clear();
}

}  // namespace partc::core
