// The device as a state machine: `Device::on(event, now)` returns commands.
//
// There are no sockets, clocks, files, threads or engines here. The table state × event is in
// partc/runtime/core/device/device.py; this is the same machine, and golden/protocol holds for both.
#pragma once

#include <vector>

#include "core/device/inbox.hpp"

namespace partc::core {

/// One device of a ring.
class Device {
 public:
  /// Nothing is loaded or connected yet; `now` is in seconds on the clock of all later events.
  Device(RolePtr role, const Start& start, double now);

  /// When a `Tick` is due.
  Due deadline() const;
  /// Whether a request is open here.
  bool has_requests() const { return parts_.requests.any_open(); }
  /// Take an event; what is to be done now, in order: `react` and `catch_up`.
  std::vector<Command> on(const Event& event, double now);
  /// The part of `on` that other devices wait for.
  std::vector<Command> react(const Event& event, double now);
  /// The rest: what can wait until the next step is on its way, and what its time has come for.
  std::vector<Command> catch_up(double now);

 private:
  void advance(double now, std::vector<Command>& commands);
  void carry_out(Actions actions, double now, std::vector<Command>& commands);
  void act(Action& action, double now, Actions& out, std::vector<Command>& commands);
  void take(const Event& event, double now, Actions& out);
  void take_rest(double now, Actions& out);

  // -- actions that concern several parts

  void forward(const Forward& action, Actions& out);
  void end(const End& action, double now, Actions& out);
  void seen(const Seen& action, Actions& out);
  void failed(Failed failed, double now, Actions& out);
  void loaded(double now, Actions& out);
  void linked(const Linked& action, double now, Actions& out);
  void lost(const Lost& lost, double now, Actions& out);
  Source& own_source();

  Parts parts_;
  Inbox inbox_;
};

}  // namespace partc::core
