#include "core/device/transfer.hpp"

#include "core/device/rows.hpp"

namespace partc::core {

Transfer::Transfer(RolePtr role, Requests& requests, Links& links, double patience_s)
    : role_(role), copies_(role), fetches(role, requests, links, copies_, patience_s), offers(role, requests, links) {}

void Transfer::adopt(RolePtr role) {
  role_ = fetches.role = role;
  copies_.adopt(role);
  offers.adopt(std::move(role));
  end();
}

void Transfer::close(std::uint64_t request) {
  copies_.close(request);
  fetches.close(request);
  offers.close(request);
}

void Transfer::begin(const Role& role, const messages::Prepare& message, double now, Actions& out) {
  offers.begin(message.epoch);
  fetches.begin(role, message, now, out);
}

void Transfer::end() {
  fetches.forget();
  offers.end();
}

void Transfer::came(const std::string& peer, const messages::Rows& rows, const Frames& frames, double now,
                    Actions& out) {
  if (rows.epoch == role_->epoch() && rows.parts != 0) return copies_.take(peer, rows, checked(rows, frames, *role_));
  fetches.came(peer, rows, frames, now, out);
}

}  // namespace partc::core
