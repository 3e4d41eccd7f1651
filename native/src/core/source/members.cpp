#include "core/source/members.hpp"

namespace partc::core {

void Members::came(const std::string& device, const Member& member) {
  members_.set(device, member);
  suspects_.erase(device);
}

void Members::gone(const std::string& device) {
  members_.erase(device);
  suspects_.erase(device);
}

void Members::stand() {
  lives_.clear();
  for (const std::string& name : role_->ring()) lives_.set(name, life(name));
  losses_.clear();
}

void Members::adopt(RolePtr role, const Map<std::string, std::uint64_t>& asked) {
  role_ = std::move(role);
  lives_.clear();
  for (const std::string& name : role_->ring()) lives_.set(name, asked.at(name));
  losses_.clear();
  for (const auto& [name, incarnation] : asked) {
    members_.set(name, {incarnation, role_->epoch(), role_->placement_digest()});
  }
}

bool Members::is_present(const std::string& device) const {
  return members_.contains(device) && !suspects_.contains(device);
}

bool Members::is_there(const std::string& device, std::uint64_t incarnation) const {
  return is_present(device) && life(device) == incarnation;
}

Names Members::present() const {
  Names found;
  for (const auto& [name, member] : members_) {
    if (is_present(name)) found.push_back(name);
  }
  return found;
}

bool Members::remembers(const std::string& device, std::uint64_t incarnation) const {
  const std::uint64_t* known = lives_.find(device);
  return known != nullptr && *known == incarnation;
}

bool Members::runs_it(const std::string& device) const {
  const Member& member = members_.at(device);
  return member.epoch == role_->epoch() && member.placement == role_->placement_digest();
}

bool Members::has_forgotten(const std::string& device) const {
  const std::uint64_t* known = lives_.find(device);
  return !runs_it(device) || (known != nullptr && *known != life(device));
}

Names Members::missing() const {
  Names found;
  for (const std::string& name : role_->ring()) {
    if (!is_present(name)) found.push_back(name);
  }
  return found;
}

Names Members::forgetful() const {
  Names found;
  for (const std::string& name : role_->ring()) {
    if (is_present(name) && has_forgotten(name)) found.push_back(name);
  }
  return found;
}

Names Members::newly_lost(const Names& missing, const Names& forgetful) {
  Map<std::string, std::optional<std::uint64_t>> lives;
  for (const std::string& name : missing) lives.set(name, std::nullopt);
  for (const std::string& name : forgetful) lives.set(name, life(name));
  Names found;
  for (const auto& [name, life] : lives) {
    const std::optional<std::uint64_t>* before = losses_.find(name);
    const std::uint64_t* known = lives_.find(name);
    const bool is_other = !life || (known != nullptr && *known != *life);
    if (is_other && (before == nullptr || (*before && *before != life))) found.push_back(name);
  }
  for (const auto& [name, life] : lives) losses_.set(name, life);
  return found;
}

}  // namespace partc::core
