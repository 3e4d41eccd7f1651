// Messages held against the right to send them, before anything is done with them (…/core/links/rights.py).
#pragma once

#include <string>

#include "core/events.hpp"
#include "format/role.hpp"

namespace partc::core {

/// Whether `peer` may send such a message to the device of a role; one that may not is to be ignored.
/// Throws Error: it is an answer, and came over a connection on which nothing was asked.
bool is_right(const messages::AnyMessage& message, const std::string& peer, const Origin& origin, const Role& role);

}  // namespace partc::core
