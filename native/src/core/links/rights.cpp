#include "core/links/rights.hpp"

#include <algorithm>
#include <ranges>

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/rights.gen.hpp"

namespace partc::core {

using messages::Party;
using messages::Right;
using messages::When;

bool is_right(const messages::AnyMessage& message, const std::string& peer, const Origin& origin, const Role& role) {
  const std::string_view kind = messages::kind_of(message);
  const bool is_back = !origin.is_route, is_source = peer == role.source(), is_client = peer == CLIENT;
  const auto is_sender = [&](Party party) {
    return party == Party::ANY || (party == Party::CLIENT && is_client) || (party == Party::SOURCE && is_source) ||
           (party == Party::DEVICE && !is_client);
  };
  const auto is_receiver = [&](Party party) {
    return party == Party::ANY || party == Party::DEVICE || (party == Party::SOURCE && role.is_source());
  };
  bool is_answer = true;
  for (const Right& right : messages::RIGHTS) {
    if (right.kind != kind) continue;
    is_answer = is_answer && right.when == When::BACK;
    const bool comes_so = (right.when != When::FIRST || !is_back) && (right.when != When::BACK || is_back);
    if (comes_so && is_sender(right.sender) && is_receiver(right.receiver)) return true;
  }
  if (is_answer && !is_back) throw refused(peer + " answers a question that was not asked");
  return false;
}

}  // namespace partc::core
