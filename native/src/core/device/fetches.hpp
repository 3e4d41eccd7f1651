// Rows that this device fetches: the receiving end of a transfer (…/core/device/fetches.py).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/device/copies.hpp"
#include "core/device/requests.hpp"
#include "core/links/links.hpp"

namespace partc::core {

/// The rows that this device fetches for the placement to come.
class Fetches {
 public:
  /// `patience_s`: the time without an answer after which rows count as lost, seconds.
  Fetches(RolePtr of_role, Requests& requests, Links& links, const Copies& copies, double patience_s)
      : role(std::move(of_role)), requests_(requests), links_(links), copies_(copies), patience_s_(patience_s) {}

  RolePtr role;

  /// A request is over: its slot belongs to another one soon.
  void close(std::uint64_t request);
  /// Fetch what a device needs for its next role, or the steps that have come since.
  void begin(const Role& next, const messages::Prepare& message, double now, Actions& out);
  /// Whether all rows are here that could be had.
  bool done() const;
  /// When `look` must be called.
  Due due() const;
  /// Give up what nobody answers.
  void look(double now);
  /// The watermarks of what was fetched.
  std::vector<messages::Held> held() const;
  /// Take a part; one that was not asked for is ignored. Throws Error: it does not fit the state.
  void came(const std::string& peer, const messages::Rows& rows, const Frames& frames, double now, Actions& out);
  /// A connection stands again: ask again for what may be lost.
  void linked(const std::string& peer, Actions& out);
  /// A slot begins anew: rows that were written to it are gone.
  void reset(std::uint64_t slot);
  /// Forget rows that were fetched for an earlier change.
  void forget();

 private:
  /// Request and sub-module.
  using Key = std::pair<std::uint64_t, std::string>;
  /// The rows of one request in one sub-module, on their way here.
  struct Fetch {
    messages::Reached reached;
    std::string submodule, holder;
    /// Whether further steps follow meanwhile.
    bool waits = false;
    Progress asked;
    /// Steps whose rows are all here; those on their way end before `end` (0: not known).
    std::uint64_t have = 0, end = 0, part = 0;
    /// Whether a step rewrites states as a whole: they come when requests stand still, behind the rows.
    bool rewritten = false;
    /// Whether they are here, as of the step `have`.
    bool exact = false;
    bool given_up = false;

    bool done() const { return given_up || (rewritten && !waits && reached.step != 0 ? exact : have >= reached.step); }
    /// Whether a request can go on with what is here.
    bool counts() const { return have != 0 && (exact || !rewritten); }
  };

  void fetch(const messages::Reached& reached, const std::string& submodule, const messages::Prepare& message,
             double now, Actions& out);
  void ask(const Fetch& fetch, Actions& out);
  void take_slot(std::uint64_t slot, std::uint64_t request, std::uint64_t sequences, Actions& out);
  void from_copy(Fetch& fetch, Actions& out);

  Requests& requests_;
  Links& links_;
  const Copies& copies_;
  double patience_s_;
  Map<Key, Fetch> fetches_;
  /// The change that they are for.
  std::uint64_t epoch_ = 0;
  /// Slot → the request for which rows were written to it.
  Map<std::uint64_t, std::uint64_t> begun_;
};

}  // namespace partc::core
