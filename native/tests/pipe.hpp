// Requests and answers over standard input and output, for the programs that tests of Python talk to.
//
// Each is 4 bytes of length, least byte first, and as many bytes of msgpack.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "format/msgpack.hpp"

namespace partc::tests {

/// The next request; none at the end of the input.
inline std::optional<std::string> read_frame() {
  unsigned char head[4];
  if (std::fread(head, 1, 4, stdin) != 4) return {};
  const std::uint32_t size = std::uint32_t{head[0]} | std::uint32_t{head[1]} << 8 | std::uint32_t{head[2]} << 16 |
                             std::uint32_t{head[3]} << 24;
  std::string frame(size, '\0');
  if (std::fread(frame.data(), 1, size, stdin) != size) return {};
  return frame;
}

inline void write_frame(const std::string& frame) {
  const auto size = static_cast<std::uint32_t>(frame.size());
  const unsigned char head[4] = {static_cast<unsigned char>(size), static_cast<unsigned char>(size >> 8),
                                 static_cast<unsigned char>(size >> 16), static_cast<unsigned char>(size >> 24)};
  std::fwrite(head, 1, 4, stdout);
  std::fwrite(frame.data(), 1, frame.size(), stdout);
  std::fflush(stdout);
}

}  // namespace partc::tests
