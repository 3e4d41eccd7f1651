// Changes of placement, at the source: REWIND (docs/wire.md); the table of states is in
// partc/runtime/core/source/changes.py.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/source/change.hpp"
#include "core/source/members.hpp"

namespace partc::core {

using Reached = std::vector<messages::Reached>;

/// The placement in force and the next one, at the source.
class Changes {
 public:
  /// `known`: placements to go over to. `addresses`: device → HOST:PORT where it told one.
  Changes(RolePtr role, std::vector<placement::Placement> known, const Map<std::string, std::string>& addresses,
          double patience_s);

  RolePtr role;
  Members members;

  // -- what the source learns

  /// A device is connected, or the source itself has loaded.
  void greeted(const std::string& device, const Member& member);
  /// A device is connected, or its links stand: what could not be prepared may be possible now.
  void ready() { refused_.clear(); }
  /// A device gives a sign of life; whether it was missed.
  bool answered(const std::string& device, double now);

  // -- what follows

  /// Find out whether what is in force or prepared can stay, and begin a change where it cannot.
  void review(const Names& absent, const Reached& reached, double now, Actions& out);
  /// A request stands still though all devices answer: all go on from what they have; a move is given up.
  void begin_anew(const Error& error, const Reached& reached, double now, Actions& out);
  /// A client asks for a placement; `review` begins the change.
  void place(const Origin& origin, const messages::Place& place, const placement::Placement& placement, double now,
             Actions& out);
  /// A participant is ready for the change.
  void prepared(const std::string& device, const messages::Prepared& message, bool is_at_rest, double now,
                Actions& out);
  /// All requests stand at their step boundaries.
  void at_rest(const Reached& reached, Actions& out);
  /// The change will not be; the placement in force stays.
  void give_up(const Error& error, Actions& out);
  /// Whether `at_rest` is waited for.
  bool is_stopping() const { return state_ == State::stopping; }
  /// When `ask_again` and `lose_silent` must be called.
  Due due() const;
  /// Ask the participants that are not prepared again, and everybody for a sign of life.
  void ask_again(const Reached& reached, double now, Actions& out);
  /// Whether participants have been silent for too long; they count as lost.
  bool lose_silent(double now);

 private:
  enum class State { settled, broken, preparing, stopping, closing };
  void stands(const Reached& reached, double now, Actions& out);
  void replace(const Names& missing, const Names& forgetful, const Reached& reached, double now, Actions& out);
  bool can_be(const placement::Placement& placement) const;
  void begin(const placement::Placement& placement, const Reached& reached, double now, bool is_loss,
             std::optional<Wish> wish, Actions& out);
  void ask(const Change& change, const Reached& reached, Actions& out) const;
  Map<std::string, std::string> holders() const;
  void commit(const Change& change, double now, Actions& out);
  void check(const placement::Placement& placement) const;

  std::vector<placement::Placement> known_;
  const Map<std::string, std::string>& addresses_;
  /// The time without a sign of life after which a participant counts as lost, seconds.
  double patience_s_;
  State state_ = State::settled;
  std::optional<Change> change_;
  /// The highest epoch that was ever heard of.
  std::uint64_t highest_;
  /// Rings of the placements that a device could not prepare.
  std::set<std::string> refused_;
  std::optional<Wish> wish_;
  /// When the schedule was told to hold; never: requests go on.
  Due held_since_;
  /// Whether steps that were under way are given up: only another change lets their requests go on.
  bool is_cut_short_ = false;
  double asked_at_ = 0.0;
};

}  // namespace partc::core
