// The bytes of a message's header, read strictly (partc/format/codec.py).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "format/messages.gen.hpp"

namespace partc {

/// The header frame of a message.
std::string encode(const messages::AnyMessage& message);

/// The message that a header frame holds. Throws Error: too long, not msgpack, of another version, of an unknown kind,
/// or with a field too many or too few or wrong.
messages::AnyMessage decode(std::string_view frame, std::size_t limit);

}  // namespace partc
