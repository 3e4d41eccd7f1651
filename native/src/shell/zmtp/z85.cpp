#include "shell/zmtp/z85.hpp"

#include <cstdint>

namespace partc::shell {
namespace {

constexpr std::string_view kLetters =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
static_assert(kLetters.size() == 85);

}  // namespace

std::string encode_z85(std::string_view bytes) {
  std::string text;
  for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    std::uint64_t number = 0;
    for (const char byte : bytes.substr(at, 4)) number = number << 8 | static_cast<unsigned char>(byte);
    for (std::uint64_t unit = 85 * 85 * 85 * 85; unit > 0; unit /= 85) text += kLetters[number / unit % 85];
  }
  return text;
}

std::optional<std::string> decode_z85(std::string_view text) {
  if (text.size() % 5) return {};
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); at += 5) {
    std::uint64_t number = 0;
    for (const char letter : text.substr(at, 5)) {
      const std::size_t digit = kLetters.find(letter);
      if (digit == kLetters.npos) return {};
      number = 85 * number + digit;
    }
    if (number > UINT32_MAX) return {};
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
  }
  return bytes;
}

}  // namespace partc::shell
