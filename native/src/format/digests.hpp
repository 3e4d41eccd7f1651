// SHA-256 of files and of data.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "format/sha256_blocks.hpp"
#include "format/value.hpp"

namespace partc {

class Sha256 {
 public:
  explicit Sha256(Sha256Blocks blocks = sha256_blocks()) : blocks_(blocks) {}

  void update(std::string_view bytes);
  /// The 32 bytes; to be asked for once.
  std::string digest();

 private:
  Sha256Blocks blocks_;
  Sha256State state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> rest_{};
  std::uint64_t size_ = 0;
};

/// 64 hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

/// SHA-256 of the canonical JSON of data, 64 hexadecimal digits.
std::string data_digest(const Value& value);

/// SHA-256 of a file, 64 hexadecimal digits. Throws Error: it cannot be read.
std::string file_digest(const std::string& path);

}  // namespace partc
