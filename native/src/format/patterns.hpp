// The patterns of names in a bundle's files, in place of regular expressions.
#pragma once

#include <string_view>

namespace partc {

/// 64 hexadecimal digits.
bool is_sha256(std::string_view text);
/// Small letters, digits and _; a letter first.
bool is_device_name(std::string_view text);
bool is_task(std::string_view text);
/// `aarch64-linux-gnu`: words of small letters, digits and _ with - between them.
bool is_platform(std::string_view text);
bool is_phase(std::string_view text);
/// A name of C.
bool is_identifier(std::string_view text);

}  // namespace partc
