#include "format/dims.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <string_view>

#include "format/complaints.hpp"
#include "format/text.hpp"

namespace partc {
namespace {

constexpr std::size_t MOST_CHARACTERS = 2000, MOST_SHOWN = 80;
constexpr int MOST_LEVELS_OF_SIZE = 200;
constexpr Integer MOST = Integer{1} << 63;

/// What stands for a symbol.
using Lookup = std::function<Integer(std::string_view)>;

/// expression := term { ("+" | "-") term }     term := factor { ("*" | "//") factor }
/// factor := "-" factor | number | symbol | "(" expression ")"
class Expression {
 public:
  Expression(std::string_view text, const Lookup& symbol) : text_(text), symbol_(symbol) {}

  Integer whole() {
    if (text_.size() > MOST_CHARACTERS) throw wrong();
    const Integer found = sum(0);
    skip();
    if (at_ != text_.size()) throw wrong();
    return found;
  }

 private:
  Error wrong() const { return run_error("not a size: " + in_quotes(text_, MOST_SHOWN)); }

  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view sign) {
    skip();
    if (!text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }
  Integer checked(Integer value) const {
    if (value >= MOST || value <= -MOST) throw wrong();
    return value;
  }

  Integer sum(int level) {
    if (level > MOST_LEVELS_OF_SIZE) throw wrong();
    Integer found = product(level);
    while (true) {
      if (take("+")) {
        found = checked(found + product(level));
      } else if (take("-")) {
        found = checked(found - product(level));
      } else {
        return found;
      }
    }
  }
  Integer product(int level) {
    Integer found = factor(level);
    while (true) {
      if (take("//")) {
        found = divided(found, factor(level));
      } else if (take("*")) {
        found = checked(found * factor(level));
      } else {
        return found;
      }
    }
  }
  /// Rounded down, as in Python.
  Integer divided(Integer number, Integer by) const {
    if (by == 0) throw wrong();
    const Integer found = number / by;
    return number % by != 0 && (number < 0) != (by < 0) ? found - 1 : found;
  }
  Integer factor(int level) {
    if (level > MOST_LEVELS_OF_SIZE) throw wrong();
    if (take("-")) return -factor(level + 1);
    if (take("(")) {
      const Integer found = sum(level + 1);
      if (!take(")")) throw wrong();
      return found;
    }
    skip();
    const std::size_t start = at_;
    auto is_digit = [](char letter) { return '0' <= letter && letter <= '9'; };
    auto is_letter = [](char letter) { return ('a' <= (letter | 32) && (letter | 32) <= 'z') || letter == '_'; };
    while (at_ < text_.size() && (is_digit(text_[at_]) || is_letter(text_[at_]))) ++at_;
    const std::string_view word = text_.substr(start, at_ - start);
    if (word.empty()) throw wrong();
    if (!is_digit(word.front())) return checked(symbol_(word));
    const bool is_octal = word.size() > 1 && word.front() == '0' && word.find_first_not_of('0') != word.npos;
    if (word.size() > 18 || is_octal || !std::ranges::all_of(word, is_digit)) throw wrong();
    Integer number = 0;
    for (const char digit : word) number = number * 10 + (digit - '0');
    return number;
  }

  std::string_view text_;
  const Lookup& symbol_;
  std::size_t at_ = 0;
};

}  // namespace

std::uint64_t evaluate(const Size& size, const Dims& dims) {
  if (const std::uint64_t* number = std::get_if<std::uint64_t>(&size)) return *number;
  const std::string& text = std::get<std::string>(size);
  if (const std::uint64_t* known = dims.find(text)) return *known;
  const Integer found = Expression(text, [&](std::string_view name) -> Integer {
                          const std::uint64_t* known = dims.find(std::string(name));
                          if (known == nullptr) throw run_error("the size of '" + std::string(name) + "' is not known");
                          return *known;
                        }).whole();
  if (found < 0) throw run_error("not a size: " + in_quotes(text, MOST_SHOWN) + " is below 0, or too large");
  return static_cast<std::uint64_t>(found);
}

Shape evaluate_shape(const std::vector<Size>& shape, const Dims& dims) {
  Shape found;
  for (const Size& size : shape) found.push_back(evaluate(size, dims));
  return found;
}

Shape cut_sizes(std::uint64_t size, std::uint64_t count) {
  const auto end = [&](std::uint64_t part) { return static_cast<std::uint64_t>(Integer{size} * part / count); };
  Shape found;
  for (std::uint64_t part = 0; part < count; ++part) found.push_back(end(part + 1) - end(part));
  return found;
}

std::set<std::string> symbols(const Size& size) {
  std::set<std::string> found;
  if (const std::string* text = std::get_if<std::string>(&size)) {
    Expression(*text, [&](std::string_view name) -> Integer {
      found.emplace(name);
      return 1;
    }).whole();
  }
  return found;
}

std::uint64_t bytes_of(const Shape& shape, std::uint64_t element_bytes) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  if (std::ranges::find(shape, 0u) != shape.end()) return 0;
  Integer found = element_bytes;
  for (const std::uint64_t size : shape) {
    found *= size;
    if (found >= most) return most;
  }
  return static_cast<std::uint64_t>(found);
}

}  // namespace partc
