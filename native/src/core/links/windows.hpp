// Frames that may be unacknowledged on a link; both of its ends find the same number from the placement.
#pragma once

#include <string>

#include "format/role.hpp"

namespace partc::core {

/// Frames after which an acknowledgement leaves at once.
inline constexpr std::uint64_t ACK_EVERY = 8;

/// Frames to a device, and from a device, that may be unacknowledged.
std::uint64_t out_window(const Role& role, const std::string& peer);
std::uint64_t in_window(const Role& role, const std::string& peer);

}  // namespace partc::core
