#include "core/source/changes.hpp"

#include <algorithm>
#include <utility>

#include "format/complaints.hpp"
#include "format/json.hpp"
#include "format/message_parts.hpp"

namespace partc::core {
namespace {

/// The text of a placement's programs, which tell one placement from another whatever its epoch.
std::string text_of_ring(const placement::Placement& placement) {
  const Value data = placement::write_placement(placement);
  return canonical_json(data.as<Object>()->at("programs"));
}

Send refusal(const Wish& wish, const Error& error) {
  return {wish.origin, messages::Error{wish.ticket, messages::problem_of(error)}, {}};
}

Error peer_lost(std::string message) { return run_error(std::move(message), "", "", "lost-peer"); }

}  // namespace

Changes::Changes(RolePtr of_role, std::vector<placement::Placement> known, const Map<std::string, std::string>& addresses,
                 double patience_s)
    : role(std::move(of_role)),
      known_(std::move(known)),
      addresses_(addresses),
      patience_s_(patience_s),
      highest_(role->epoch()) {}

void Changes::greeted(const std::string& device, const Member& member) {
  members.set(device, member);
  highest_ = std::max(highest_, member.epoch);
  suspects_.erase(device);
  ready();
}

void Changes::gone(const std::string& device) {
  members.erase(device);
  suspects_.erase(device);
}

bool Changes::answered(const std::string& device, double now) {
  if (Progress* heard = change_ ? change_->heard.find(device) : nullptr) heard->moved(now);
  return suspects_.erase(device) > 0;
}

bool Changes::remembers(const std::string& device, std::uint64_t incarnation) const {
  const std::uint64_t* known = in_force_.find(device);
  return known != nullptr && *known == incarnation;
}

void Changes::review(const Names& absent, const Reached& reached, double now, Actions& out) {
  if (change_) {
    const bool are_there = std::ranges::all_of(change_->asked, [&](const auto& entry) {
      return is_present(entry.first) && members.at(entry.first).incarnation == entry.second;
    });
    if (are_there) return;
    give_up(peer_lost("a device was lost meanwhile"), out);
  }
  Names missing, forgetful;
  for (const std::string& name : role->ring()) {
    if (!is_present(name)) {
      missing.push_back(name);
    } else if (has_forgotten(name)) {
      forgetful.push_back(name);
    }
  }
  const bool all_know = std::ranges::all_of(forgetful, [&](const auto& name) { return is_in_force(members.at(name)); });
  if (reached.empty() && missing.empty() && all_know) forgetful.clear();  // there is nothing to remember
  if (!missing.empty() || !forgetful.empty()) {
    replace(missing, forgetful, reached, now, out);
  } else if (absent.empty()) {
    in_force_.clear();
    for (const std::string& name : role->ring()) in_force_.set(name, members.at(name).incarnation);
    losses_.clear();
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
  if (!change_ && suspects_.empty()) return {};
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
    suspects_.insert(device);
    is_any = true;
  }
  return is_any;
}

bool Changes::is_present(const std::string& device) const {
  return members.contains(device) && !suspects_.contains(device);
}

/// Whether a device that is present does not know the placement in force, or lost what it had in it.
bool Changes::has_forgotten(const std::string& device) const {
  const Member& member = members.at(device);
  const std::uint64_t* known = in_force_.find(device);
  return !is_in_force(member) || (known != nullptr && *known != member.incarnation);
}

/// Whether a device runs the placement in force; a former life of the source may have given out its epoch.
bool Changes::is_in_force(const Member& member) const {
  return member.epoch == role->epoch() && member.placement == role->placement_digest();
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
  if (!missing.empty() && in_force_.empty()) return;  // the ring has never stood: they are still starting
  if (wish_) {
    out.push_back(refusal(*wish_, peer_lost((missing.empty() ? forgetful : missing).front() + " was lost")));
    wish_.reset();
  }
  std::vector<placement::Placement> tried{role->placement};
  tried.insert(tried.end(), known_.begin(), known_.end());
  const auto found = std::ranges::find_if(tried, [&](const auto& placement) { return can_be(placement); });
  if (found != tried.end()) {
    out.push_back(Replaced{newly_lost(missing, forgetful)});
    begin(*found, reached, now, true, {}, out);
    return;
  }
  state_ = State::broken;
  Names devices = missing;
  devices.insert(devices.end(), forgetful.begin(), forgetful.end());
  out.push_back(Broken{devices});
}

/// Those that were not lost before, or were back since.
Names Changes::newly_lost(const Names& missing, const Names& forgetful) {
  Map<std::string, std::optional<std::uint64_t>> lives;
  for (const std::string& name : missing) lives.set(name, std::nullopt);
  for (const std::string& name : forgetful) lives.set(name, members.at(name).incarnation);
  Names found;
  for (const auto& [name, life] : lives) {
    const std::optional<std::uint64_t>* before = losses_.find(name);
    if (before == nullptr || (*before && *before != life)) found.push_back(name);
  }
  for (const auto& [name, life] : lives) losses_.set(name, life);
  return found;
}

bool Changes::can_be(const placement::Placement& placement) const {
  return std::ranges::all_of(placement.ring, [&](const auto& name) { return is_present(name); }) &&
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
    if (is_present(name)) participants.insert(name);
  }
  for (const std::string& name : participants) {
    change.asked.set(name, members.at(name).incarnation);
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
    if (is_present(device) && !has_forgotten(device)) found.set(name, device);
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
  in_force_.clear();
  for (const std::string& name : role->ring()) in_force_.set(name, change.asked.at(name));
  losses_.clear();
  for (const auto& [name, incarnation] : change.asked) {
    members.set(name, {incarnation, role->epoch(), role->placement_digest()});
  }
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
    if (!is_present(name)) throw refused(name + " is not connected", name);
  }
  check_role(*role_of(role, placement), "placement");
}

void placed(const Adopt& adopt, std::uint64_t steps, double now, Actions& out) {
  if (!adopt.wish) return;
  const messages::Placed message{adopt.wish->ticket, adopt.role->epoch(), now - adopt.wish->asked, adopt.stopped_s, steps};
  out.push_back(Send{adopt.wish->origin, message, {}});
}

}  // namespace partc::core
