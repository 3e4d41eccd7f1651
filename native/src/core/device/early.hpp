// Questions for rows that come before the change that they are for is known here (…/core/device/early.py).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/actions.hpp"

namespace partc::core {

/// The early questions: of each device those of one change, one for each request and sub-module.
class Early {
 public:
  /// Keep a question about something that is here.
  void keep(const Heard& heard, const messages::Want& want) {
    if (!of_.contains(heard.peer) || of_.at(heard.peer).first != want.epoch) of_.set(heard.peer, {want.epoch, {}});
    of_.at(heard.peer).second.set({want.request, want.submodule}, heard);
  }
  /// All of them, which are not kept any more.
  std::vector<Heard> taken() {
    std::vector<Heard> found;
    for (const auto& [device, kept] : std::exchange(of_, {})) {
      for (const auto& [key, heard] : kept.second) found.push_back(heard);
    }
    return found;
  }

 private:
  /// Device → the epoch, and (request, sub-module) → the question.
  Map<std::string, std::pair<std::uint64_t, Map<std::pair<std::uint64_t, std::string>, Heard>>> of_;
};

}  // namespace partc::core
