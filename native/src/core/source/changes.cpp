#include "core/source/changes.hpp"

#include <algorithm>
#include <utility>

#include "format/complaints.hpp"
#include "format/message_parts.hpp"

namespace partc::core {
namespace {

Error peer_lost(std::string message) { return run_error(std::move(message), "", "", "lost-peer"); }

}  // namespace

Changes::Changes(RolePtr of_role, std::vector<placement::Placement> known,
                 const Map<std::string, std::string>& addresses, double patience_s)
    : role(std::move(of_role)),
      members(role),
      known_(std::move(known)),
      addresses_(addresses),
      patience_s_(patience_s),
      highest_(role->epoch()) {}

void Changes::greeted(const std::string& device, const Member& member) {
  members.came(device, member);
  highest_ = std::max(highest_, member.epoch);
  ready();
}

bool Changes::answered(const std::string& device, double now) {
  if (Progress* heard = change_ ? change_->heard.find(device) : nullptr) heard->moved(now);
  return members.answered(device);
}

void Changes::review(const Names& absent, const Reached& reached, double now, Actions& out) {
  if (change_) {
    const bool are_there = std::ranges::all_of(change_->asked, [&](const auto& entry) {
      return members.is_there(entry.first, entry.second);
    });
    if (are_there) return;
    give_up(peer_lost("a device was lost meanwhile"), out);
  }
  const Names missing = members.missing();
  Names forgetful = members.forgetful();
  const bool all_know = std::ranges::all_of(forgetful, [&](const auto& name) { return members.runs_it(name); });
  if (reached.empty() && missing.empty() && all_know) forgetful.clear();  // there is nothing to remember
  if (!missing.empty() || !forgetful.empty()) {
    replace(missing, forgetful, reached, now, out);
  } else if (absent.empty()) {
    members.stand();
    stands(reached, now, out);
  }
}

void Changes::begin_anew(const Error& error, const Reached& reached, double now, Actions& out) {
  if (change_ && !change_->is_loss) give_up(error, out);
  if (!change_) begin(role->placement, reached, now, true, {}, out);
}

void Changes::place(const Origin& origin, const messages::Place& place, const placement::Placement& placement,
                    double now, Actions& out) {
  const Wish wish{origin, place.ticket, placement, place.reason, now};
  try {
    check(placement);
  } catch (const Error& error) {
    out.push_back(refusal(wish, error));
    return;
  }
  wish_ = wish;
}

void Changes::prepared(const std::string& device, const messages::Prepared& message, bool is_at_rest, double now,
                       Actions& out) {
  if (!change_ || message.epoch != change_->role->epoch()) return;
  const std::uint64_t* incarnation = change_->asked.find(device);
  if (incarnation == nullptr || *incarnation != message.incarnation) return;
  if (message.problem) {
    refused_.insert(text_of_ring(change_->role->placement));
    return give_up(messages::error_of(*message.problem), out);
  }
  change_->prepared.set(device, message);
  if (change_->prepared.size() != change_->asked.size()) return;
  if (change_->is_loss || is_at_rest || state_ == State::closing) {
    commit(Change(*change_), now, out);
  } else if (state_ == State::preparing) {
    state_ = State::stopping;
    held_since_ = now;
    out.push_back(Hold{false});
  }
}

void Changes::at_rest(const Reached& reached, Actions& out) {
  if (state_ != State::stopping || !change_) return;
  state_ = State::closing;
  change_->prepared.clear();
  ask(*change_, reached, out);
}

void Changes::give_up(const Error& error, Actions& out) {
  const std::optional<Change> change = std::exchange(change_, std::nullopt);
  state_ = State::settled;
  if (!change) return;
  for (const auto& [device, incarnation] : change->asked) {
    out.push_back(Tell{device, messages::Abort{change->role->epoch(), messages::problem_of(error)}, {}});
  }
  if (change->wish) out.push_back(refusal(*change->wish, error));
}

Due Changes::due() const {
  if (!change_ && !members.any_suspect()) return {};
  Due first = asked_at_ + patience_s_ / 4;
  if (!change_) return first;
  for (const auto& [device, progress] : change_->heard) first = soonest({first, progress.expires(patience_s_)});
  return first;
}

void Changes::ask_again(const Reached& reached, double now, Actions& out) {
  if (now < asked_at_ + patience_s_ / 4) return;
  asked_at_ = now;
  out.push_back(Broadcast{messages::Ping{}});
  if (change_) ask(*change_, reached, out);
}

bool Changes::lose_silent(double now) {
  bool is_any = false;
  for (const auto& [device, progress] : change_ ? change_->heard : Map<std::string, Progress>{}) {
    if (now < progress.expires(patience_s_)) continue;
    members.suspect({device});
    is_any = true;
  }
  return is_any;
}

/// The placement in force stands: go on with it, or with what was asked for.
void Changes::stands(const Reached& reached, double now, Actions& out) {
  if (is_cut_short_ && !reached.empty()) return begin(role->placement, reached, now, true, {}, out);
  if (state_ == State::broken || held_since_) {
    state_ = State::settled;
    held_since_.reset();
    is_cut_short_ = false;
    out.push_back(Mended{});
  }
  if (wish_) {
    const Wish wish = *wish_;
    begin(wish.placement, reached, now, false, wish, out);
  }
}

void Changes::replace(const Names& missing, const Names& forgetful, const Reached& reached, double now, Actions& out) {
  if (!missing.empty() && !members.ever_stood()) return;  // the ring has never stood: they are still starting
  if (wish_) {
    out.push_back(refusal(*wish_, peer_lost((missing.empty() ? forgetful : missing).front() + " was lost")));
    wish_.reset();
  }
  std::vector<placement::Placement> tried{role->placement};
  tried.insert(tried.end(), known_.begin(), known_.end());
  const auto found = std::ranges::find_if(tried, [&](const auto& placement) { return can_be(placement); });
  if (found != tried.end()) {
    out.push_back(Replaced{members.newly_lost(missing, forgetful)});
    begin(*found, reached, now, true, {}, out);
    return;
  }
  state_ = State::broken;
  Names devices = missing;
  devices.insert(devices.end(), forgetful.begin(), forgetful.end());
  out.push_back(Broken{devices});
}

bool Changes::can_be(const placement::Placement& placement) const {
  return std::ranges::all_of(placement.ring, [&](const auto& name) { return members.is_present(name); }) &&
         !refused_.contains(text_of_ring(placement));
}

void Changes::begin(const placement::Placement& placement, const Reached& reached, double now, bool is_loss,
                    std::optional<Wish> wish, Actions& out) {
  wish_.reset();
  placement::Placement following = placement;
  following.epoch = ++highest_;
  Change change;
  change.role = role_of(role, placement::seal_placement(std::move(following)));
  std::set<std::string> participants(change.role->ring().begin(), change.role->ring().end());
  for (const std::string& name : role->ring()) {
    if (members.is_present(name)) participants.insert(name);
  }
  for (const std::string& name : participants) {
    change.asked.set(name, members.life(name));
    if (name != role->device()) change.heard.set(name, Progress{now});
  }
  change.is_loss = is_loss;
  change.wish = std::move(wish);
  asked_at_ = now;
  change_ = std::move(change);
  state_ = State::preparing;
  if (is_loss) {
    held_since_ = now;
    is_cut_short_ = true;
    out.push_back(Hold{true});
  }
  ask(*change_, reached, out);
}

void Changes::ask(const Change& change, const Reached& reached, Actions& out) const {
  const Role& next = *change.role;
  const Frames frames = split_frames(Frame::copy(placement::placement_text(next.placement)));
  const bool stands_still = change.is_loss || state_ == State::closing;
  const messages::Prepare message{next.placement_digest(), next.epoch(), addresses_, holders(), reached, stands_still};
  std::set<std::string> awaited;
  for (const auto& [device, incarnation] : change.asked) {
    if (!change.prepared.contains(device)) awaited.insert(device);
  }
  for (const std::string& device : awaited) out.push_back(Tell{device, message, frames});
}

/// Sub-module → the device that runs it now, or else keeps a copy of its rows, where that has not forgotten.
Map<std::string, std::string> Changes::holders() const {
  Map<std::string, std::string> found;
  auto note = [&](const std::string& name, const std::string& device) {
    if (members.is_present(device) && !members.has_forgotten(device)) found.set(name, device);
  };
  for (const auto& [name, device] : role->placement.mirrors) note(name, device);
  for (const auto& [device, names] : role->all_running) {
    for (const std::string& name : names) note(name, device);
  }
  return found;
}

void Changes::commit(const Change& change, double now, Actions& out) {
  change_.reset();
  state_ = State::settled;
  role = change.role;
  const double stopped_s = held_since_ ? now - *held_since_ : 0.0;
  held_since_.reset();
  is_cut_short_ = false;
  members.adopt(role, change.asked);
  Adopt adopt{role, change.asked, {}, change.wish, stopped_s};
  for (const auto& [device, prepared] : change.prepared) {
    for (const messages::Held& held : prepared.have) adopt.have.set({device, held.request, held.submodule}, held);
  }
  out.push_back(std::move(adopt));
}

/// Throws Error: a placement cannot be gone over to.
void Changes::check(const placement::Placement& placement) const {
  if (wish_ || change_) throw refused("another change is under way", "", "try again in a while");
  if (placement.plan_id != role->build->plan_id || placement.source != role->source()) {
    throw bundle_error("the placement is not one of this build, with this source");
  }
  const std::set<std::string> ring(placement.ring.begin(), placement.ring.end());
  for (const std::string& name : ring) {
    if (!members.is_present(name)) throw refused(name + " is not connected", name);
  }
  check_role(*role_of(role, placement), "placement");
}

}  // namespace partc::core
