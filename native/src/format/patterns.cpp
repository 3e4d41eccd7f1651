#include "format/patterns.hpp"

#include <algorithm>

#include "format/facts.gen.hpp"

namespace partc {
namespace {

bool is_digit(char letter) { return '0' <= letter && letter <= '9'; }
bool is_small(char letter) { return 'a' <= letter && letter <= 'z'; }
bool is_large(char letter) { return 'A' <= letter && letter <= 'Z'; }
bool is_word(char letter) { return is_small(letter) || is_digit(letter) || letter == '_'; }

/// Python's `$` also matches before a last line end, where nothing forbids it.
std::string_view without_line_end(std::string_view text) {
  return text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
}

}  // namespace

bool is_sha256(std::string_view text) {
  return text.size() == 64 &&
         std::ranges::all_of(text, [](char letter) { return is_digit(letter) || ('a' <= letter && letter <= 'f'); });
}

bool is_device_name(std::string_view text) {
  return !text.empty() && is_small(text.front()) && std::ranges::all_of(text, is_word);
}

bool is_task(std::string_view text) { return std::ranges::find(TASKS, without_line_end(text)) != TASKS.end(); }

bool is_platform(std::string_view text) {
  text = without_line_end(text);
  bool is_begun = false;
  int words = 0;
  for (char letter : text) {
    if (letter == '-' && !is_begun) return false;
    if (letter != '-' && !is_word(letter)) return false;
    words += letter == '-';
    is_begun = letter != '-';
  }
  return is_begun && words > 0;
}

bool is_phase(std::string_view text) {
  text = without_line_end(text);
  return text == "prefill" || text == "decode";
}

bool is_identifier(std::string_view text) {
  auto is_letter = [](char letter) { return is_small(letter) || is_large(letter) || letter == '_'; };
  return !text.empty() && is_letter(text.front()) &&
         std::ranges::all_of(text, [&](char letter) { return is_letter(letter) || is_digit(letter); });
}

}  // namespace partc
