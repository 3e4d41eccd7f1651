// Copies of other devices' rows, kept in memory as long as nobody needs them (partc/runtime/core/device/copies.py).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/actions.hpp"

namespace partc::core {

/// The rows of one request in one sub-module.
class Copy {
 public:
  /// Steps whose rows are all here.
  std::uint64_t have = 0;
  std::uint64_t sequences = 0;

  /// Take a part of a state of `most` positions; one that does not follow is ignored.
  void take(const messages::Rows& rows, const Tensor& array, std::uint64_t most);
  /// `act(state, sequence, rows from the first one on)` for everything; rows of steps that are not whole do no harm.
  void for_each(const std::function<void(const std::string&, std::uint64_t, Tensor)>& act) const;

 private:
  struct Kept {
    /// Memory of [max_sequence, heads, d], and what it holds.
    std::string bytes;
    Tensor like;
    std::uint64_t end = 0;
  };
  std::uint64_t part_ = 0;
  /// (state, sequence)
  Map<std::pair<std::string, std::uint64_t>, Kept> rows_;
};

/// All copies that this device keeps.
class Copies {
 public:
  explicit Copies(RolePtr role) : role_(std::move(role)) {}

  /// Take a part of a sub-module that this device keeps a copy of and `owner` runs, in the placement in force.
  void take(const std::string& owner, const messages::Rows& rows, const Tensor& array);
  /// The copy of a request's rows; null: there is none.
  const Copy* of(std::uint64_t request, const std::string& submodule) const {
    return copies_.find({request, submodule});
  }
  /// A request is over.
  void close(std::uint64_t request);
  /// Another placement is in force: owners send everything again, to whom it says.
  void adopt(RolePtr role);

 private:
  void forget_oldest();

  RolePtr role_;
  Map<std::pair<std::uint64_t, std::string>, Copy> copies_;
};

}  // namespace partc::core
