// The headers of `data`: the step and the values that they announce, held against the placement.
#pragma once

#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/step.hpp"

namespace partc::core {

/// The headers that one device takes.
class Headers {
 public:
  /// Those of a placement.
  explicit Headers(RolePtr role);
  /// The step of a message, and its values by name. Throws Error: the programs do not await it, or it does not fit the
  /// placement.
  std::pair<Step, Tensors> read(const std::string& peer, const messages::Data& data, const Frames& frames) const;

 private:
  void check_drawn(const Step& step, const Tensors& values) const;

  RolePtr role_;
  /// (phase, peer, names) of every message that the programs wait for.
  std::set<std::tuple<std::string, std::string, program::Names>> awaited_;
  /// Values that are tokens for clients; another device has drawn those that come in a message.
  std::set<std::string> tokens_;
};

}  // namespace partc::core
