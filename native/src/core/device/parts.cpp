#include "core/device/parts.hpp"

#include <algorithm>

namespace partc::core {

Parts::Parts(RolePtr of_role, const Start& start, double now)
    : role(std::move(of_role)),
      links(role, start.incarnation, start.info),
      membership(role, start.incarnation),
      requests(std::make_shared<const Script>(role)),
      monitor(links, requests),
      transfer(role, requests, links, start.patience_s),
      preparation(role, start.incarnation, links, requests, transfer, std::max(start.patience_s, start.rejoin_s)) {
  if (role->is_source()) source = std::make_unique<Source>(role, start, links, membership, now);
}

void Parts::look(double now, Actions& out) {
  if (source) {
    source->look(now, out);
  } else {
    membership.look(links.missing(), requests.next_request, out);
  }
}

messages::Pong Parts::pong(std::uint64_t token) const {
  return {token, requests.computing().has_value(), requests.doing()};
}

void Parts::adopt(RolePtr to, const messages::Commit& commit, double now, Actions& out) {
  role = to;
  out.push_back(in_force(*to));
  early.taken();
  requests.resume(std::make_shared<const Script>(to), commit.requests, now);
  monitor.adopt();
  transfer.adopt(to);
  preparation.adopt(to, out);
  links.adopt(to, out);
  if (source) return;
  membership.role = to;
  look(now, out);
}

Send Parts::timings(std::uint64_t number, const std::vector<Timing>& steps) const {
  const auto [columns, table] = timing_table(steps);
  const messages::Timings message{number, role->device(), columns, {{"timing", "float64", table.shape}}};
  return {Origin{role->source()}, message, split_frames(table.bytes)};
}

}  // namespace partc::core
