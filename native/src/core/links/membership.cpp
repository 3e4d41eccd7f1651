#include "core/links/membership.hpp"

namespace partc::core {

void Membership::left(const std::string& device, const Origin& origin) {
  // A link to a device that breaks can come back alone, and then no second `ready` follows.
  const Origin* known = joined.find(device);
  if (known != nullptr && *known == origin) joined.erase(device);
  if (state == State::complete) state = State::degraded;
}

void Membership::adopt(RolePtr of_role, const Map<std::string, Origin>& ready) {
  role = std::move(of_role);
  joined = ready;
}

Names Membership::absent(const Names& missing) const {
  Names found;
  for (const std::string& name : role->ring()) {
    const bool is_loaded = name == role->device() && state != State::loading;
    if (!joined.contains(name) && !is_loaded) add_once(found, name);
  }
  for (const std::string& name : missing) add_once(found, name);
  return found;
}

void Membership::look(const Names& missing, std::uint64_t next_request, Actions& out) {
  if (state == State::loading) return;
  if (!(role->is_source() ? absent(missing) : missing).empty()) return;
  state = State::complete;
  if (!role->is_source()) {
    const messages::Ready ready{next_request, role->placement_digest(), role->epoch(), incarnation};
    out.push_back(Send{Origin{role->source()}, ready, {}});
  }
  if (is_announced_) return;
  is_announced_ = true;
  out.push_back(Announce{});
}

}  // namespace partc::core
