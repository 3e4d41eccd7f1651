/** Binary keys as text (RFC 32): 5 letters for 4 bytes. */
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace partc::shell {

/** `bytes` are a multiple of 4. */
std::string encode_z85(std::string_view bytes);
/** None: it is no such text. */
std::optional<std::string> decode_z85(std::string_view text);

}  // namespace partc::shell
