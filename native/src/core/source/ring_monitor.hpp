// The status of a ring, at its source, for those who watch (…/core/source/ring_monitor.py).
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "core/actions.hpp"
#include "core/links/links.hpp"
#include "core/source/schedule.hpp"
#include "core/source/watchers.hpp"

namespace partc::core {

/// Reports of the source to those who watch.
class RingMonitor {
 public:
  RingMonitor(Links& links, Schedule& schedule) : links_(links), schedule_(schedule) {}

  Watchers watchers;

  /// A client begins to watch, or ends.
  void watch(const Origin& origin, const messages::Watch& watch, double now, Actions& out);
  /// A device has answered.
  void sensed(const std::string& device, const messages::Sensed& sensed, double now);
  /// A device is connected.
  void greeted(const std::string& device);
  /// The connection of a device is closed: what it told holds no longer.
  void gone(const std::string& device, double now);
  /// Devices were lost, and no placement does without them.
  void broken(const Names& devices);
  /// All that was lost is there again.
  void mended();
  /// Devices were lost, or came back without memory; a change follows.
  void replaced(const Replaced& replaced);
  /// A placement is in force.
  void adopt(const Adopt& adopt, double now);
  /// Ask all devices where it is time for that, and tell those who watch once the answers are here.
  void look(double now, Actions& out);
  Due due() const { return watchers.due(); }

 private:
  void ask(const messages::Sense& sense, Actions& out) const;
  messages::RingStatus status(double now) const;
  messages::DeviceStatus device(const std::string& name, double now) const;

  Links& links_;
  Schedule& schedule_;
  /// When each was made, on the source's clock.
  std::deque<std::pair<double, messages::Change>> changes_;
  /// Device that was connected → when its connection ended.
  Map<std::string, double> away_;
  /// Device → how often it was lost.
  std::map<std::string, std::uint64_t> losses_;
  /// Devices whose loss is counted, and may be told again when a placement follows.
  std::set<std::string> counted_;
  /// Changes that clients asked for.
  std::uint64_t moves_ = 0;
  /// The cause of the change that is being prepared.
  std::string cause_;
};

}  // namespace partc::core
