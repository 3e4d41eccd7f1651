#include "core/source/change.hpp"

#include "format/json.hpp"
#include "format/message_parts.hpp"

namespace partc::core {

void placed(const Adopt& adopt, std::uint64_t steps, double now, Actions& out) {
  if (!adopt.wish) return;
  const messages::Placed message{adopt.wish->ticket, adopt.role->epoch(), now - adopt.wish->asked, adopt.stopped_s,
                                 steps};
  out.push_back(Send{adopt.wish->origin, message, {}});
}

Send refusal(const Wish& wish, const Error& error) {
  return {wish.origin, messages::Error{wish.ticket, messages::problem_of(error)}, {}};
}

std::string text_of_ring(const placement::Placement& placement) {
  const Value data = placement::write_placement(placement);
  return canonical_json(data.as<Object>()->at("programs"));
}

}  // namespace partc::core
