#include "format/json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/text.hpp"

namespace partc {
namespace {

constexpr std::size_t MOST_DIGITS = 20;

class Reader {
 public:
  Reader(std::string_view text, const std::string& where) : text_(text), where_(where) {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
    if (!is_utf8(text_)) throw recompile("not valid JSON: it is no UTF-8", where_);
  }

  Value whole() {
    Value found = value(0);
    skip();
    if (at_ != text_.size()) throw wrong("extra data");
    return found;
  }

 private:
  Error wrong(const std::string& what) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = 1 + std::ranges::count(before, '\n');
    const std::size_t start = before.rfind('\n') + 1;  // npos + 1 is 0
    const std::size_t column = 1 + characters(before.substr(start));
    return recompile("not valid JSON: " + what, where_ + ":" + std::to_string(line) + ":" + std::to_string(column));
  }

  static bool is_space(char letter) { return letter == ' ' || letter == '\n' || letter == '\r' || letter == '\t'; }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Value value(std::size_t level) {
    skip();
    switch (peek()) {
      case '{': return object(level + 1);
      case '[': return array(level + 1);
      case '"': return {text()};
      default: break;
    }
    if (take("true")) return {true};
    if (take("false")) return {false};
    if (take("null")) return {nullptr};
    return number();
  }

  void enter(std::size_t level) {
    if (level > MOST_LEVELS) throw recompile("nested too deeply", where_);
    ++at_;
    skip();
  }

  Value array(std::size_t level) {
    enter(level);
    List list;
    if (take("]")) return {std::move(list)};
    while (true) {
      list.push_back(value(level));
      skip();
      if (take("]")) return {std::move(list)};
      if (!take(",")) throw wrong("',' expected");
    }
  }

  Value object(std::size_t level) {
    enter(level);
    Object object;
    if (take("}")) return {std::move(object)};
    while (true) {
      skip();
      if (peek() != '"') throw wrong("a key in double quotes expected");
      const std::string key = text();
      if (object.contains(key)) throw wrong("the key " + in_quotes(key) + " stands twice in one object");
      skip();
      if (!take(":")) throw wrong("':' expected");
      object.set(key, value(level));
      skip();
      if (take("}")) return {std::move(object)};
      if (!take(",")) throw wrong("',' expected");
    }
  }

  std::string text() {
    ++at_;
    std::string found;
    while (true) {
      if (at_ >= text_.size()) throw wrong("a text without its end");
      const char letter = text_[at_++];
      if (letter == '"') return found;
      if (static_cast<unsigned char>(letter) < 0x20) throw wrong("a control character in a text");
      if (letter == '\\') {
        escaped(found);
      } else {
        found += rest_of_run(at_ - 1);
      }
    }
  }

  /// The letters from here on that stand for themselves.
  std::string_view rest_of_run(std::size_t start) {
    while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }
  static bool is_plain(char letter) {
    return letter != '"' && letter != '\\' && static_cast<unsigned char>(letter) >= 0x20;
  }

  void escaped(std::string& found) {
    static constexpr std::string_view names = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
    const char name = peek();
    const std::size_t place = name == '\0' ? std::string_view::npos : names.find(name);
    if (place != std::string_view::npos) {
      ++at_;
      found += meant[place];
      return;
    }
    if (!take("u")) throw wrong("no such escape");
    unsigned long code = hex();
    if (0xD800 <= code && code < 0xDC00 && take("\\u")) {
      const unsigned long low = hex();
      if (low < 0xDC00 || low > 0xDFFF) throw wrong("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (0xD800 <= code && code <= 0xDFFF) throw wrong("half of a surrogate pair");
    append_utf8(found, code);
  }

  unsigned long hex() {
    unsigned long code = 0;
    const char* first = text_.data() + at_;
    const char* last = first + std::min<std::size_t>(4, text_.size() - at_);
    const auto [end, problem] = std::from_chars(first, last, code, 16);
    if (problem != std::errc() || end - first != 4) throw wrong("four hexadecimal digits expected");
    at_ += 4;
    return code;
  }

  std::size_t digits() {
    const std::size_t start = at_;
    while ('0' <= peek() && peek() <= '9') ++at_;
    return at_ - start;
  }

  Value number() {
    const std::size_t start = at_;
    const bool is_negative = take("-");
    const bool leads_with_0 = peek() == '0';
    const std::size_t whole = digits();
    if (whole == 0) {
      at_ = start;
      throw wrong("a value expected");
    }
    if (leads_with_0 && whole > 1) at_ -= whole - 1;  // what follows the 0 is then too much
    bool is_real = false;
    if (peek() == '.') is_real = fraction();
    if (peek() == 'e' || peek() == 'E') is_real = exponent() || is_real;
    const std::string_view text = text_.substr(start, at_ - start);
    return is_real ? real(text) : integer(text, is_negative);
  }
  bool fraction() {
    const std::size_t start = at_++;
    if (digits() > 0) return true;
    at_ = start;
    return false;
  }
  bool exponent() {
    const std::size_t start = at_++;
    if (peek() == '+' || peek() == '-') ++at_;
    if (digits() > 0) return true;
    at_ = start;
    return false;
  }
  Value real(std::string_view text) const {
    const double found = std::strtod(std::string(text).c_str(), nullptr);
    if (!std::isfinite(found)) throw wrong("the number is too large");
    return {found};
  }
  Value integer(std::string_view text, bool is_negative) const {
    if (text.size() > MOST_DIGITS + 1) throw wrong("the number is too large");
    Integer found = 0;
    for (const char digit : text.substr(is_negative)) found = found * 10 + (digit - '0');
    if (found >> 64 != 0) throw wrong("the number is too large");
    return {is_negative ? -found : found};
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
};

class Writer {
 public:
  explicit Writer(bool is_spread) : is_spread_(is_spread) {}

  void write(const Value& value, std::size_t level) {
    if (const Integer* number = value.as<Integer>()) {
      whole(*number);
    } else if (const double* real = value.as<double>()) {
      out_ += number_text(*real);
    } else if (const bool* truth = value.as<bool>()) {
      out_ += *truth ? "true" : "false";
    } else if (const std::string* item = value.as<std::string>()) {
      text(*item);
    } else if (const List* list = value.as<List>()) {
      array(*list, level);
    } else if (const Object* object = value.as<Object>()) {
      map(*object, level);
    } else {
      out_ += "null";
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void line(std::size_t level) {
    if (!is_spread_) return;
    out_ += '\n';
    out_.append(level, ' ');
  }
  void array(const List& list, std::size_t level) {
    out_ += '[';
    for (std::size_t at = 0; at < list.size(); ++at) {
      if (at > 0) out_ += ',';
      line(level + 1);
      write(list[at], level + 1);
    }
    if (!list.empty()) line(level);
    out_ += ']';
  }
  void map(const Object& object, std::size_t level) {
    std::vector<const Object::Entry*> sorted;
    for (const auto& entry : object) sorted.push_back(&entry);
    std::ranges::sort(sorted, {}, [](const Object::Entry* entry) -> const std::string& { return entry->first; });
    out_ += '{';
    for (std::size_t at = 0; at < sorted.size(); ++at) {
      if (at > 0) out_ += ',';
      line(level + 1);
      text(sorted[at]->first);
      out_ += is_spread_ ? ": " : ":";
      write(sorted[at]->second, level + 1);
    }
    if (!sorted.empty()) line(level);
    out_ += '}';
  }
  void whole(Integer number) {
    const bool is_negative = number < 0;
    if (is_negative) out_ += '-';
    out_ += std::to_string(static_cast<std::uint64_t>(is_negative ? -number : number));
  }
  void text(std::string_view item) {
    static constexpr std::string_view meant = "\"\\\b\f\n\r\t", names = "\"\\bfnrt";
    out_ += '"';
    for (const char letter : item) {
      const std::size_t place = meant.find(letter);
      if (place != std::string_view::npos) {
        out_ += '\\';
        out_ += names[place];
      } else if (static_cast<unsigned char>(letter) < 0x20) {
        out_ += "\\u00" + to_hex(std::string_view(&letter, 1));
      } else {
        out_ += letter;
      }
    }
    out_ += '"';
  }

  bool is_spread_;
  std::string out_;
};

}  // namespace

Value read_json(std::string_view text, const std::string& where) { return Reader(text, where).whole(); }

Object read_json_object(std::string_view text, const std::string& where) {
  Value found = read_json(text, where);
  if (found.as<Object>() == nullptr) throw recompile("not a JSON object", where);
  return std::get<Object>(std::move(found.data));
}

std::string canonical_json(const Value& value) {
  Writer writer(true);
  writer.write(value, 0);
  return writer.take() + "\n";
}

std::string compact_json(const Value& value) {
  Writer writer(false);
  writer.write(value, 0);
  return writer.take();
}

std::string number_text(double number) {
  char buffer[40];
  const auto written = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<std::size_t>(written.ptr - buffer));
  const std::size_t e = text.find('e');
  if (e == std::string_view::npos) return std::string(text);  // inf, nan
  int exponent = 0;
  const char* sign = text.data() + e + 1;
  std::from_chars(*sign == '+' ? sign + 1 : sign, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    std::string size = std::to_string(std::abs(exponent));
    return std::string(text.substr(0, e)) + (exponent < 0 ? "e-" : "e+") + (size.size() < 2 ? "0" : "") + size;
  }
  std::string digits;
  for (const char letter : text.substr(0, e)) {
    if ('0' <= letter && letter <= '9') digits += letter;
  }
  const std::string minus = text.front() == '-' ? "-" : "";
  if (exponent < 0) return minus + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto before = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= before) return minus + digits + std::string(before - digits.size(), '0') + ".0";
  return minus + digits.substr(0, before) + "." + digits.substr(before);
}

}  // namespace partc
