// Slots: which are free, and the tokens whose rows the last request of each has left, for prompts that begin alike
// (partc/runtime/core/source/slots.py).
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "core/commands.hpp"
#include "format/map.hpp"

namespace partc::core {

class Slots {
 public:
  /// All are free, and none has rows.
  explicit Slots(std::uint64_t count);

  /// How many no request has.
  std::size_t free() const { return free_.size(); }
  bool any_free() const { return !free_.empty(); }
  /// A request leaves its slot, and the rows of these tokens; few are as good as none.
  void give(std::uint64_t slot, std::uint64_t request, Counts tokens);
  /// Rows may be gone: another placement is in force.
  void forget() { kept_.clear(); }
  /// A free slot, and what the request keeps of its rows; O(slots × tokens).
  ///
  /// That which most of the prompt's rows lie in, where they are half of what it has; else one that has none, the last
  /// one that was left; else the oldest. At least one token is left to compute. No prompt: nothing is kept.
  std::pair<std::uint64_t, std::optional<messages::Reuse>> take(const Counts& prompt);

 private:
  struct Kept {
    std::uint64_t request = 0;
    Counts tokens;
  };

  Counts free_;
  /// Slot → its last request, and the tokens whose rows that has left; the oldest first.
  Map<std::uint64_t, Kept> kept_;
};

}  // namespace partc::core
