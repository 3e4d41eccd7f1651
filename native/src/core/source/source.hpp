// The source's part of a device: clients' requests, membership of the ring, and changes of placement, together.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/links/links.hpp"
#include "core/links/membership.hpp"
#include "core/source/changes.hpp"
#include "core/source/ring_monitor.hpp"
#include "core/source/schedule.hpp"

namespace partc::core {

/// Messages of clients to the source, and of devices.
using Asked = std::variant<const messages::Submit*, const messages::Cancel*, const messages::Resume*,
                           const messages::Watch*, const messages::Place*>;
using Report =
    std::variant<const messages::Ready*, const messages::Unready*, const messages::Fail*, const messages::Timings*,
                 const messages::Crossed*, const messages::Pong*, const messages::Prepared*, const messages::Sensed*>;

class Source {
 public:
  /// The parts of a source that starts `now`; every other device is still to come.
  Source(const RolePtr& role, const Start& start, Links& links, Membership& membership, double now);
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  Schedule schedule;
  Changes changes;
  RingMonitor monitor;

  /// A client asks for something; a device tells something.
  void asked(const Heard& heard, const Asked& message, double now, Actions& out);
  void told(const Heard& heard, const Report& report, double now, Actions& out);
  /// The source itself has loaded.
  void loaded(std::uint64_t incarnation);
  /// Requests below this number are over for whoever greets: for a new life all that have begun.
  std::uint64_t first_request(const messages::Hello& hello) const;
  /// A device is connected.
  void greeted(const messages::Hello& hello, double now, Actions& out);
  /// A connection from or to a device is closed.
  void lost(const std::string& device, const Origin& origin, double now, Actions& out);
  /// A request stands still: whoever does not answer counts as lost; else all go on from what they have.
  void stalled(const Stalled& stalled, double now, Actions& out);
  /// Devices were lost, and no placement does without them.
  void broken(const Broken& broken, double now, Actions& out);
  /// The ring stands as it stood.
  void mended(double now, Actions& out);
  /// Find out whether the ring stands, and what must change; what has waited for it opens.
  void look(double now, Actions& out);
  /// A placement follows that does without devices that were lost, or does not need what they forgot.
  void replaced(const Replaced& replaced, double now, Actions& out);
  /// A prepared placement is in force.
  void adopt(const Adopt& adopt, double now, Actions& out);
  /// Do what can wait until the next step is on its way, and what is due.
  void catch_up(double now, Actions& out);
  /// When `catch_up` must be called.
  Due due() const { return soonest({schedule.deadlines.due(), schedule.guessed.due, changes.due(), monitor.due()}); }

 private:
  std::vector<LinkNames> cut_links(const Names& missing) const;
  void place(const Heard& heard, const messages::Place& message, double now, Actions& out);

  Links& links_;
  Membership& membership_;
  /// Device → the one to which its link is down.
  Map<std::string, std::string> unready_;
};

}  // namespace partc::core
