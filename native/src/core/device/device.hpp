// The device as a state machine: `Device::on(event, now)` returns commands.
//
// There are no sockets, clocks, files, threads or engines here. The table state × event is in
// partc/runtime/core/device/device.py; this is the same machine but for steps that requests share, which it has not, and
// golden/protocol holds for both but for the traces of those.
#pragma once

#include <memory>
#include <vector>

#include "core/device/early.hpp"
#include "core/device/journal.hpp"
#include "core/device/preparation.hpp"
#include "core/device/vitals.hpp"
#include "core/source/source.hpp"

namespace partc::core {

/// Facts about a device's process that the build does not know.
struct Start {
  /// 64 random bits.
  std::uint64_t incarnation = 0;
  /// Lowest number of a request at the source; its clock in milliseconds, so that numbers grow over restarts.
  std::uint64_t first_request = 0;
  /// The shortest time without progress after which a peer counts as gone, seconds.
  double patience_s = LEAST_PATIENCE_S;
  /// The time that requests wait for a device that was lost, seconds; 0: they end at once.
  double rejoin_s = 0.0;
  /// The time that a request waits for its client to come back, seconds; 0: it is cancelled at once.
  double linger_s = 0.0;
  /// At the source: placements that do without a device.
  std::vector<placement::Placement> contingencies;
  /// Facts for everyone who connects.
  Info info;
};

/// One device of a ring.
class Device {
 public:
  /// Nothing is loaded or connected yet; `now` is in seconds on the clock of all later events.
  Device(RolePtr role, const Start& start, double now);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// When a `Tick` is due.
  Due deadline() const;
  /// Whether a request is open here.
  bool has_requests() const { return requests_.any_open(); }
  /// Take an event; what is to be done now, in order: `react` and `catch_up`.
  std::vector<Command> on(const Event& event, double now);
  /// The part of `on` that other devices wait for.
  std::vector<Command> react(const Event& event, double now);
  /// The rest: what can wait until the next step is on its way, and what its time has come for.
  std::vector<Command> catch_up(double now);

 private:
  void advance(double now, std::vector<Command>& commands);
  void carry_out(Actions actions, double now, std::vector<Command>& commands);
  void act(Action& action, double now, Actions& out);
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
  void look(double now, Actions& out);
  void tell(const Tell& action, double now, Actions& out);
  void adopt(RolePtr role, const messages::Commit& commit, double now, Actions& out);
  void heard(const Heard& heard, double now, Actions& out);
  void wanted(const Heard& heard, const messages::Want& want, Actions& out);
  void heard_from_source(const Heard& heard, double now, Actions& out);
  void close(const messages::Close& close, Actions& out);
  messages::Pong pong(std::uint64_t token) const;
  Send timings(std::uint64_t number, const std::vector<Timing>& steps) const;

  RolePtr role_;
  Links links_;
  Membership membership_;
  Requests requests_;
  Monitor monitor_;
  Journal journal_;
  Transfer transfer_;
  Preparation preparation_;
  Early early_;
  /// On the source alone.
  std::unique_ptr<Source> source_;
};

}  // namespace partc::core
