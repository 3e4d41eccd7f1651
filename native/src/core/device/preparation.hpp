// The placement that a device prepares, while the one in force goes on; the table of states is in
// partc/runtime/core/device/preparation.py.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/device/transfer.hpp"
#include "core/links/outages.hpp"

namespace partc::core {

class Preparation {
 public:
  Preparation(RolePtr role, std::uint64_t incarnation, Links& links, Requests& requests, Transfer& transfer,
              double link_wait_s);

  /// Whether `look` may find what was missing.
  bool is_fetching() const { return state_ == State::fetching; }
  /// The time at which `look` must be called, even if nothing has come.
  Due due() const { return link_wait_.ends(); }
  /// Whether a device may ask for rows: the change that is prepared gives it that sub-module, for that request.
  bool gives(const std::string& device, const messages::Want& want) const;
  /// Whether PREPARE of this epoch may still come.
  bool may_follow(std::uint64_t epoch) const { return epoch > role_->epoch() && epoch != this->epoch(); }
  /// The source asks for it.
  void prepare(const messages::Prepare& message, const Frame& text, double now, Actions& out);
  /// The engine has loaded what it was asked for, or cannot.
  void loaded(Actions& out);
  void failed(const Error& error, Actions& out);
  /// Go on, if what was missing is there.
  void look(double now, Actions& out);
  /// A connection stands again: what was told to the source over the old one may be lost.
  void linked(const std::string& peer, Actions& out);
  /// The role that is in force now; none where another life of this device is meant, or another change.
  RolePtr commit(const messages::Commit& commit) const;
  /// A role is in force: what it does not run is released.
  void adopt(RolePtr role, Actions& out);
  /// The source has given the change up.
  void abort(const messages::Abort& abort, Actions& out);

 private:
  enum class State { none, loading, fetching, prepared };

  std::uint64_t epoch() const { return next_ ? next_->epoch() : 0; }
  RolePtr read(const messages::Prepare& message, const Frame& text) const;
  bool has_loaded(const Role& role) const;
  void load(const Role& role, Actions& out);
  void wait_for(const std::string& peer, double now, Actions& out);
  void end();
  void drop(Actions& out);
  void release(Actions& out);
  void tell_prepared(Actions& out) const;
  void unable(std::uint64_t epoch, Error error, Actions& out) const;

  /// The role in force.
  RolePtr role_;
  std::uint64_t incarnation_;
  Links& links_;
  Requests& requests_;
  Transfer& transfer_;
  /// The wait for links that only the placement to come needs.
  Wait link_wait_;
  State state_ = State::none;
  RolePtr next_;
  std::optional<messages::Prepare> message_;
  /// Sub-modules that the engine has.
  std::set<std::string> loaded_;
  /// Sub-modules that the engine is asked to load; it answers in the same order.
  std::deque<Names> under_way_;
};

}  // namespace partc::core
