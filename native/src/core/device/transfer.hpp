// Rows of states on their way from one device to another, while the ring runs (partc/runtime/core/device/transfer.py).
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device/copies.hpp"
#include "core/links/links.hpp"
#include "core/device/requests.hpp"

namespace partc::core {

/// The rows that this device fetches, and those that others fetch from it.
class Transfer {
 public:
  /// `patience_s`: the time without an answer after which rows count as lost, seconds.
  Transfer(RolePtr role, Requests& requests, Links& links, double patience_s);

  /// Another placement is in force.
  void adopt(RolePtr role);
  /// A request is over: its slot belongs to another one soon.
  void close(std::uint64_t request);

  // -- the receiving end

  /// Fetch what a device needs for its next role, or the steps that have come since.
  void begin(const Role& role, const messages::Prepare& message, double now, Actions& out);
  /// Whether all rows are here that could be had.
  bool done() const;
  /// When `look` must be called.
  Due due() const;
  /// Give up what nobody answers.
  void look(double now);
  /// The watermarks of what was fetched.
  std::vector<messages::Held> held() const;
  /// Rows came. Throws Error: they are none of the state.
  void came(const std::string& peer, const messages::Rows& rows, const Frames& frames, double now, Actions& out);
  /// A connection stands again: ask again for what may be lost.
  void linked(const std::string& peer, Actions& out);
  /// A slot begins anew: rows that were written to it are gone.
  void reset(std::uint64_t slot);
  /// Forget rows that were fetched for an earlier change.
  void forget();
  /// The change has come into force, or will not be: nobody may ask for rows any more.
  void end();

  // -- the sending end

  /// Answer a question, without rows where there are none; or keep it until its step is over.
  void wanted(const std::string& peer, const Origin& origin, const messages::Want& want, Actions& out);
  /// The rows of the oldest answer.
  void read(const Tensor& array, Actions& out);
  /// Whether somebody waits for steps to be over.
  bool has_waiting() const { return !waiting_.empty(); }
  /// Steps are over: answer those who waited for them.
  void stepped(Actions& out);
  /// Send the rows of steps that are over to the devices that keep copies.
  void mirror(Actions& out);

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

    bool done() const {
      return given_up || (rewritten && !waits && reached.step != 0 ? exact : have >= reached.step);
    }
    /// Whether a request can go on with what is here.
    bool counts() const { return have != 0 && (exact || !rewritten); }
  };

  void fetch(const messages::Reached& reached, const std::string& submodule, const messages::Prepare& message,
             double now, Actions& out);
  void ask(const Fetch& fetch, Actions& out);
  void take_slot(std::uint64_t slot, std::uint64_t request, std::uint64_t sequences, Actions& out);
  void from_copy(Fetch& fetch, Actions& out);
  void mirror(std::uint64_t number, const std::string& submodule, const std::string& keeper, Actions& out);
  void read_out(const Origin& way, const Request& request, const messages::Rows& header,
                std::optional<std::uint64_t> only, bool whole, Actions& out);
  bool has(const Request& request, const messages::Want& want) const;

  RolePtr role_;
  Requests& requests_;
  Links& links_;
  double patience_s_;
  Map<Key, Fetch> fetches_;
  /// The change that they are for.
  std::uint64_t epoch_ = 0;
  /// Slot → the request for which rows were written to it.
  Map<std::uint64_t, std::uint64_t> begun_;
  /// Device and what it asks for → its last question, where the step is not over.
  Map<std::pair<std::string, Key>, std::pair<Origin, messages::Want>> waiting_;
  /// Answers whose rows are being read.
  std::deque<std::pair<Origin, messages::Rows>> reading_;
  Copies copies_;
  /// Steps whose rows the device has that keeps a copy.
  Map<Key, std::uint64_t> sent_;
};

}  // namespace partc::core
