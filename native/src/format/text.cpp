#include "format/text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace partc {
namespace {

/// Length of the sequence that a byte begins, and the range of the byte behind it; length 0: it begins none.
struct Lead {
  std::size_t length;
  unsigned char low, high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

/// Bytes of the code point that a text begins with; 0: it begins with none.
std::size_t whole_length(std::string_view bytes) {
  const Lead lead = lead_of(static_cast<unsigned char>(bytes.front()));
  if (lead.length == 0 || bytes.size() < lead.length) return 0;
  for (std::size_t next = 1; next < lead.length; ++next) {
    const auto byte = static_cast<unsigned char>(bytes[next]);
    const unsigned char low = next == 1 ? lead.low : 0x80, high = next == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return 0;
  }
  return lead.length;
}

bool is_within(char letter) { return (static_cast<unsigned char>(letter) & 0xC0) == 0x80; }

bool is_control(char letter) { return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F; }

std::string hex_escape(char letter) { return "\\x" + to_hex({&letter, 1}); }

/// The escape that `repr` writes for a control character of ASCII, a backslash or the quote; empty: the letter itself.
std::string escape_of(char letter, char quote) {
  static constexpr std::string_view meant = "\n\r\t", names = "nrt";
  if (letter == quote || letter == '\\') return {'\\', letter};
  if (const std::size_t at = meant.find(letter); at != meant.npos) return {'\\', names[at]};
  return is_control(letter) ? hex_escape(letter) : "";
}

/// Bytes of the control beyond ASCII that UTF-8 text begins with; 0: none. Those are U+0080 to U+009F, separators of
/// lines, and marks that turn the direction of what follows (U+2028 to U+202E, U+2066 to U+2069).
std::size_t control_length(std::string_view text) {
  const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  const auto is_from = [&](std::size_t at, unsigned low, unsigned high) { return low <= byte(at) && byte(at) <= high; };
  if (byte(0) == 0xC2) return is_from(1, 0x80, 0x9F) ? 2 : 0;
  if (byte(0) != 0xE2) return 0;
  return (byte(1) == 0x80 && is_from(2, 0xA8, 0xAE)) || (byte(1) == 0x81 && is_from(2, 0xA6, 0xA9)) ? 3 : 0;
}

/// The escape of such a control.
std::string control_escape(std::string_view control) {
  if (control.size() == 2) return hex_escape(control[1]);
  const char low = static_cast<char>((control[1] & 3) << 6 | (control[2] & 0x3F));
  return "\\u20" + to_hex({&low, 1});
}

/// UTF-8 text with some of its letters written otherwise: those of ASCII that `escape` has a text for, and all controls
/// beyond ASCII.
template <class Escape>
std::string escaped(std::string_view text, Escape escape) {
  std::string found;
  while (!text.empty()) {
    const std::size_t length = control_length(text);
    const std::string instead = length == 0 ? escape(text.front()) : control_escape(text.substr(0, length));
    found += instead.empty() ? std::string(1, text.front()) : instead;
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return found;
}

int base64_digit(char letter) {
  if ('A' <= letter && letter <= 'Z') return letter - 'A';
  if ('a' <= letter && letter <= 'z') return letter - 'a' + 26;
  if ('0' <= letter && letter <= '9') return letter - '0' + 52;
  if (letter == '+') return 62;
  return letter == '/' ? 63 : -1;
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = whole_length(bytes.substr(at));
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char letter) { return !is_within(letter); }));
}

std::string_view shortened(std::string_view text, std::size_t most) {
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size(); ++end) {
    if (!is_within(text[end]) && count++ == most) break;
  }
  return text.substr(0, end);
}

std::string in_quotes(std::string_view text, std::size_t most) {
  const std::string_view kept = shortened(text, most);
  const bool is_single = text.find('\'') == text.npos || text.find('"') != text.npos;
  const char quote = is_single ? '\'' : '"';
  const std::string found = escaped(kept, [&](char letter) { return escape_of(letter, quote); });
  return std::string(shortened(quote + found + quote, most));
}

std::string printable(std::string text) {
  return escaped(to_utf8(std::move(text)), [](char letter) {
    return letter == '\n' || letter == '\t' || !is_control(letter) ? std::string() : hex_escape(letter);
  });
}

std::string one_line(std::string text, std::size_t most) {
  const std::string whole = to_utf8(std::move(text));
  return escaped(shortened(whole, most), [](char letter) { return is_control(letter) ? hex_escape(letter) : ""; });
}

std::string to_utf8(std::string bytes) {
  if (is_utf8(bytes)) return bytes;
  std::string found;
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::size_t length = whole_length(rest);
    found += length == 0 ? "\xEF\xBF\xBD" : rest.substr(0, length);
    rest.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return found;
}

void append_utf8(std::string& text, unsigned long code) {
  auto put = [&](unsigned long byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return {};
  std::string found;
  for (std::size_t at = 0; at < text.size(); at += 4) {
    const bool is_last = at + 4 == text.size();
    const std::size_t padding = !is_last ? 0 : text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
    std::uint32_t bits = 0;
    for (std::size_t index = 0; index < 4; ++index) {
      const int digit = index >= 4 - padding ? 0 : base64_digit(text[at + index]);
      if (digit < 0) return {};
      bits = bits << 6 | static_cast<std::uint32_t>(digit);
    }
    for (std::size_t index = 0; index < 3 - padding; ++index) found += static_cast<char>(bits >> (16 - 8 * index));
  }
  return found;
}

std::string to_hex(std::string_view bytes) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += digits[static_cast<unsigned char>(byte) >> 4];
    text += digits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

std::string from_hex(std::string_view digits) {
  auto number = [](char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; };
  std::string bytes;
  for (std::size_t at = 0; at + 1 < digits.size(); at += 2) {
    bytes += static_cast<char>(number(digits[at]) << 4 | number(digits[at + 1]));
  }
  return bytes;
}

}  // namespace partc
