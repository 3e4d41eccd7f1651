// UTF-8 and base64.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace partc {

/// Characters of a quoted text of others in a message.
inline constexpr std::size_t MOST_QUOTED = 60;

/// Whether bytes are UTF-8 as Python reads it: no overlong forms, no halves of surrogate pairs, nothing above U+10FFFF.
bool is_utf8(std::string_view bytes);
/// Code points of UTF-8 text.
std::size_t characters(std::string_view text);
/// The first code points of UTF-8 text, none of them cut: `text[:most]` in Python.
std::string_view shortened(std::string_view text, std::size_t most);
/// Text of others in a message, `{text!r:.60}` in Python: controls, quotes and backslashes are escaped, and all is
/// shortened. Most letters beyond U+00A0 stay as they are; Python escapes all that cannot be printed, such as U+200B.
std::string in_quotes(std::string_view text, std::size_t most = MOST_QUOTED);
/// A text for a terminal: UTF-8, and controls but line ends and tabs as `\\x1b` or `\\u202e` (partc/printable.py).
std::string printable(std::string text);
/// Its first code points, in which tabs and line ends stand as escapes, too.
std::string one_line(std::string text, std::size_t most);
/// The same bytes where they are UTF-8; else with U+FFFD in place of each byte that is not.
std::string to_utf8(std::string bytes);
/// Appends a code point that is no half of a surrogate pair.
void append_utf8(std::string& text, unsigned long code);
/// The bytes that base64 text with its padding stands for.
std::optional<std::string> from_base64(std::string_view text);
/// Digits of a SHA-256 as they stand in files, and its bytes as they travel.
std::string to_hex(std::string_view bytes);
/// Of an even number of hexadecimal digits.
std::string from_hex(std::string_view digits);
/// Texts with something between them.
template <class Texts>
std::string joined(const Texts& texts, std::string_view between) {
  std::string all;
  bool is_first = true;
  for (const auto& text : texts) {
    if (!is_first) all += between;
    is_first = false;
    all += text;
  }
  return all;
}

}  // namespace partc
