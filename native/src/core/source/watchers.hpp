// Those who watch a ring, at its source: the rounds of questions to its devices.
//
// The table of a round's states is in partc/runtime/core/source/watchers.py.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/events.hpp"
#include "core/liveness.hpp"

namespace partc::core {

/// A device as it last told, the time from the question to the answer (none: the last question has had no answer), and
/// when.
struct Told {
  messages::Vitals vitals;
  std::optional<double> answer_s;
  double at = 0.0;
};

/// A client that watches.
struct Watcher {
  Origin origin;
  Bytes ticket;
  double period_s = 0.0;
  double due = 0.0;
};

/// All who watch a ring, at its source.
class Watchers {
 public:
  bool is_watched = false;
  /// Device → as it last told.
  Map<std::string, Told> told;

  /// A client begins to watch, or ends (period 0). Throws Error: too many watch already.
  void watch(const Origin& origin, const messages::Watch& watch, double now);
  /// A client went away.
  void left(const Origin& origin);
  /// When a round begins or ends; never: nobody watches.
  Due due() const;
  /// Whether the last one has just gone; what was noted for them goes as well.
  bool has_ended();
  /// Whether a round begins now; then these devices are to be asked.
  bool begins(const std::set<std::string>& devices, double now);
  /// A device has answered.
  void sensed(const std::string& device, const messages::Vitals& vitals, double now);
  /// Those who get the status now: at the end of a round, all whose time had come.
  std::vector<Watcher> answered(double now);

 private:
  Map<std::pair<Origin, Bytes>, Watcher> all_;
  /// When the round under way began.
  Due asked_at_;
  /// Devices that have not answered in it.
  std::set<std::string> awaited_;
};

}  // namespace partc::core
