#include "core/device/preparation.hpp"

#include <algorithm>
#include <utility>

#include "core/device/journal.hpp"
#include "format/message_parts.hpp"

namespace partc::core {

Preparation::Preparation(RolePtr role, std::uint64_t incarnation, Links& links, Requests& requests, Transfer& transfer,
                         double link_wait_s)
    : role_(std::move(role)), incarnation_(incarnation), links_(links), requests_(requests), transfer_(transfer) {
  link_wait_.limit_s = link_wait_s;
  under_way_.push_back(role_->running);
}

void Preparation::prepare(const messages::Prepare& message, const Frame& text, double now, Actions& out) {
  if (message.epoch <= role_->epoch()) return;
  if (!next_ || message.placement != next_->placement_digest()) {
    try {
      next_ = read(message, text);
    } catch (const Error& error) {
      return unable(message.epoch, error, out);
    }
    link_wait_.since.reset();
    links_.prepare(*next_, message.addresses, out);
    load(*next_, out);
  } else if (state_ == State::prepared && !message.stands_still) {
    return;  // it is told: an answer to this question could pass for that to the next one, with the last steps
  }
  if (role_->rewrites_any()) {
    std::set<std::uint64_t> standing;
    for (const messages::Reached& each : message.requests) {
      if (message.stands_still) standing.insert(each.request);
    }
    requests_.halt(std::move(standing));
  }
  message_ = message;
  state_ = State::loading;
  look(now, out);
}

void Preparation::loaded(Actions& out) {
  const Names names = std::move(under_way_.front());
  under_way_.pop_front();
  loaded_.insert(names.begin(), names.end());
  if (state_ == State::none) release(out);
}

void Preparation::failed(const Error& error, Actions& out) {
  const Names failed = std::move(under_way_.front());
  under_way_.pop_front();
  const bool concerns = next_ && std::ranges::any_of(failed, [&](const std::string& name) {
                          return std::ranges::find(next_->running, name) != next_->running.end();
                        });
  if (!concerns) return;
  unable(epoch(), error, out);
  drop(out);
}

void Preparation::look(double now, Actions& out) {
  if (!next_ || !message_) return;
  if (state_ == State::loading && has_loaded(*next_)) {
    state_ = State::fetching;
    transfer_.begin(*next_, *message_, now, out);
  }
  if (state_ != State::fetching) return;
  if (const Names missing = links_.outgoing.missing_for(*next_); !missing.empty())
    return wait_for(missing.front(), now, out);
  link_wait_.since.reset();
  if (!transfer_.fetches.done()) return;
  state_ = State::prepared;
  tell_prepared(out);
}

void Preparation::linked(const std::string& peer, Actions& out) {
  if (peer == role_->source() && state_ == State::prepared && next_) tell_prepared(out);
}

void Preparation::tell_prepared(Actions& out) const {
  // The watermarks of what the device runs already, and of what it fetched.
  Names kept;
  for (const std::string& name : next_->running) {
    if (std::ranges::find(role_->running, name) != role_->running.end()) kept.push_back(name);
  }
  messages::Prepared prepared{epoch(), incarnation_, requests_.held(kept), {}};
  const std::vector<messages::Held> fetched = transfer_.fetches.held();
  prepared.have.insert(prepared.have.end(), fetched.begin(), fetched.end());
  out.push_back(Tell{role_->source(), std::move(prepared), {}});
}

bool Preparation::gives(const std::string& device, const messages::Want& want) const {
  if (!next_ || !message_ || want.epoch != next_->epoch()) return false;
  const bool is_of_it =
      std::ranges::any_of(message_->requests, [&](const auto& each) { return each.request == want.request; });
  const std::set<std::string>* given = next_->all_running.find(device);
  return is_of_it && given != nullptr && given->contains(want.submodule);
}

RolePtr Preparation::commit(const messages::Commit& commit) const {
  if (state_ != State::prepared || !next_ || commit.incarnation != incarnation_) return nullptr;
  return commit.placement == next_->placement_digest() ? next_ : nullptr;
}

void Preparation::adopt(RolePtr role, Actions& out) {
  role_ = std::move(role);
  end();
  release(out);
}

void Preparation::abort(const messages::Abort& abort, Actions& out) {
  if (abort.epoch != epoch()) return;
  out.push_back(dropped(abort));
  drop(out);
}

/// The role to come. Throws Error: it does not fit the build.
RolePtr Preparation::read(const messages::Prepare& message, const Frame& text) const {
  RolePtr role = role_of(role_, placement::parse_placement(text.text(), "prepare"));
  if (role->epoch() != message.epoch || role->placement_digest() != message.placement) {
    throw run_error("the placement is not that of epoch " + std::to_string(message.epoch), "", "", "bug");
  }
  check_role(*role, "prepare");
  return role;
}

bool Preparation::has_loaded(const Role& role) const {
  return std::ranges::all_of(role.running, [&](const std::string& name) { return loaded_.contains(name); });
}

void Preparation::load(const Role& role, Actions& out) {
  std::set<std::string> there = loaded_;
  for (const Names& names : under_way_) there.insert(names.begin(), names.end());
  Names missing;
  for (const std::string& name : role.running) {
    if (!there.contains(name)) missing.push_back(name);
  }
  if (missing.empty()) return;
  under_way_.push_back(missing);
  out.push_back(Load{role.epoch(), std::move(missing)});
}

/// Wait for a link, but not for ever: a network may never carry it.
void Preparation::wait_for(const std::string& peer, double now, Actions& out) {
  if (!link_wait_.since) {
    link_wait_.since = now;
  } else if (link_wait_.is_over(now)) {
    unable(epoch(), not_reached(role_->device(), peer, link_wait_.limit_s), out);
    drop(out);
  }
}

void Preparation::end() {
  next_ = nullptr;
  message_.reset();
  state_ = State::none;
  link_wait_.since.reset();
}

void Preparation::drop(Actions& out) {
  end();
  requests_.halt({});
  transfer_.end();
  release(out);
}

void Preparation::release(Actions& out) {
  Names spare;
  for (const std::string& name : loaded_) {
    if (std::ranges::find(role_->running, name) == role_->running.end()) spare.push_back(name);
  }
  if (spare.empty()) return;
  for (const std::string& name : spare) loaded_.erase(name);
  out.push_back(Release{std::move(spare)});
}

void Preparation::unable(std::uint64_t epoch, Error error, Actions& out) const {
  if (error.where.empty()) error.where = role_->device();
  out.push_back(Tell{role_->source(), messages::Prepared{epoch, incarnation_, {}, messages::problem_of(error)}, {}});
}

}  // namespace partc::core
