/** The largest size of messages: larger frames are refused before memory is taken for them
(`partc/runtime/shell/limits.py`). */
#pragma once

#include <cstdint>

#include "format/role.hpp"

namespace partc::shell {

/** The longest header that a device takes, bytes: of values, or of a change of placement; the source's covers a client's
prompts. */
std::uint64_t header_limit(const Role& role);

/** The largest frame that a device takes, bytes: a header, or the largest tensor that it may receive.

That is under any placement: what a device is sent is an input of one of its sub-modules, running now or not; the source
is sent inputs and outputs of the whole model, too.
*/
std::uint64_t frame_limit(const Role& role);

}  // namespace partc::shell
