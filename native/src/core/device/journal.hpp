// Journal of a device: what happens to the ring, as events of its log (…/core/device/journal.py, whose docstring is the
// table action × events).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/actions.hpp"
#include "core/liveness.hpp"
#include "format/role.hpp"

namespace partc::core {

/// The past of a device, as far as later events need it.
class Journal {
 public:
  /// The events of an action, in front of what follows from it.
  void note(const Action& action, double now, std::vector<Command>& commands);

 private:
  Log greeted(const std::string& device, double now);
  void closed(const Lost& lost, double now, std::vector<Command>& commands);
  void no_way(const Names& devices, double now, std::vector<Command>& commands);
  void stands_still(double now);
  Log adopted(const Adopt& adopt, double now);
  Log healed(const std::string& reason, double seconds);

  /// Device that was connected → when its connection ended.
  Map<std::string, double> away_;
  /// Devices to which a link stands.
  std::set<std::string> linked_;
  /// Devices without which no placement does, and which a line has named.
  Names broken_;
  /// Devices that were lost since the last placement came into force.
  Names lost_;
  /// When requests were last told to stand still.
  Due still_since_;
};

/// A placement is in force, at any device.
Log in_force(const Role& role);
/// A placement that was prepared will not be in force.
Log dropped(const messages::Abort& abort);

}  // namespace partc::core
