// The text of instructions: one line read token by token, and lines written (partc/format/program_text.py).
#include <algorithm>
#include <optional>

#include "errors.hpp"
#include "format/json.hpp"
#include "format/match.hpp"
#include "format/patterns.hpp"
#include "format/program.hpp"
#include "format/text.hpp"
#include "format/value.hpp"

namespace partc::program {
namespace {

bool is_bare(char letter) {
  const bool is_letter = ('a' <= (letter | 32) && (letter | 32) <= 'z') || ('0' <= letter && letter <= '9');
  return is_letter || (letter != '\0' && std::string_view("_.:/@$%+[]-").find(letter) != std::string_view::npos);
}

bool is_space(char letter) { return letter == ' ' || ('\t' <= letter && letter <= '\r'); }

/// A cursor over the tokens of one line.
class Line {
 public:
  Line(std::string_view text, std::string where) : where_(std::move(where)) { split(text); }

  bool at_end() const { return next_ == tokens_.size(); }
  void expect_end() const {
    if (!at_end()) throw error(in_quotes(tokens_[next_]) + " is too much", "one instruction a line");
  }
  std::string name(const std::string& what = "a name") {
    const std::string token = take(what);
    if (token.starts_with('"')) return unquoted(token);
    if (!std::ranges::all_of(token, is_bare) || token == "->")
      throw error(what + " expected before " + in_quotes(token));
    return token;
  }
  void literal(const std::string& text) {
    const std::string token = take("'" + text + "'");
    if (token != text) throw error(in_quotes(text) + " expected before " + in_quotes(token));
  }
  std::string device() {
    const std::string token = take("a device");
    if (!is_device_name(token)) {
      throw error(in_quotes(token) + " is no device name", "lower-case letters, digits and _");
    }
    return token;
  }
  /// One name or several, each once.
  Names names() {
    Names found{name("a value")};
    while (!at_end() && tokens_[next_] == ",") {
      ++next_;
      found.push_back(name("a value"));
    }
    Names sorted = found;
    std::ranges::sort(sorted);
    const auto twice = std::ranges::adjacent_find(sorted);
    if (twice != sorted.end()) throw error(in_quotes(*twice) + " stands twice in one list");
    return found;
  }
  /// Names in parentheses, or none.
  Names tuple() {
    literal("(");
    const bool is_empty = !at_end() && tokens_[next_] == ")";
    Names found = is_empty ? Names{} : names();
    literal(")");
    return found;
  }
  std::uint64_t axis() {
    const std::string token = take("an axis");
    const bool is_digit = token.size() == 1 && '0' <= token[0] && token[0] <= '9';
    const bool is_more = token.size() == 2 && token[0] == '1' && '0' <= token[1] && token[1] <= '5';
    if (!is_digit && !is_more) throw error(in_quotes(token) + " is no axis", "a number from 0 to 15");
    return static_cast<std::uint64_t>(std::stoi(token));
  }
  Error error(const std::string& message, const std::string& hint = "") const {
    return bundle_error(message, where_, hint);
  }

 private:
  std::string take(const std::string& what) {
    if (at_end()) throw error(what + " expected at the end of the line");
    return tokens_[next_++];
  }
  std::string unquoted(const std::string& token) const {
    try {
      const Value found = read_json(token, where_);
      return *found.as<std::string>();
    } catch (const Error&) {
      throw error(token + " is not a JSON string");
    }
  }

  void split(std::string_view text) {
    std::size_t at = 0;
    while (true) {
      while (at < text.size() && is_space(text[at])) ++at;
      if (at == text.size() || text[at] == '#') return;
      const std::size_t size = token_size(text.substr(at));
      if (size == 0) throw error("cannot read " + in_quotes(text.substr(at)), "odd names stand in double quotes");
      tokens_.emplace_back(text.substr(at, size));
      at += size;
    }
  }
  static std::size_t token_size(std::string_view text) {
    if (text.front() == '"') return quoted_size(text);
    if (text.starts_with("->")) return 2;
    if (std::string_view(",()").find(text.front()) != std::string_view::npos) return 1;
    std::size_t size = 0;
    while (size < text.size() && is_bare(text[size]) && !text.substr(size).starts_with("->")) ++size;
    return size;
  }
  /// 0: the text has no end.
  static std::size_t quoted_size(std::string_view text) {
    for (std::size_t at = 1; at < text.size(); ++at) {
      if (text[at] == '"') return at + 1;
      if (text[at] == '\\') ++at;
    }
    return 0;
  }

  std::string where_;
  std::vector<std::string> tokens_;
  std::size_t next_ = 0;
};

Instruction parse_line(Line& line) {
  const std::string word = line.name("an instruction");
  if (word == "recv") {
    Names values = line.names();
    line.literal("from");
    return Recv{std::move(values), line.device()};
  }
  if (word == "run") {
    std::string submodule = line.name();
    Names inputs = line.tuple();
    line.literal("->");
    return Run{std::move(submodule), std::move(inputs), line.tuple()};
  }
  if (word == "send") {
    Names values = line.names();
    line.literal("to");
    return Send{std::move(values), line.device()};
  }
  if (word == "sample") {
    std::string logits = line.name();
    line.literal("->");
    return Sample{std::move(logits), line.name()};
  }
  if (word == "add") {
    Names terms = line.names();
    line.literal("->");
    return Add{std::move(terms), line.name()};
  }
  if (word == "cut") {
    std::string whole = line.name();
    line.literal("->");
    Names parts = line.names();
    line.literal("along");
    return Cut{std::move(whole), std::move(parts), line.axis()};
  }
  if (word == "join") {
    Names parts = line.names();
    line.literal("->");
    std::string whole = line.name();
    line.literal("along");
    return Join{std::move(parts), std::move(whole), line.axis()};
  }
  if (word == "emit") return Emit{line.names()};
  if (word == "keep") return Keep{line.names()};
  throw line.error("unknown instruction " + in_quotes(word),
                   "one of recv, run, send, sample, add, cut, join, emit, keep");
}

std::string print_name(const std::string& name) {
  const bool bare = !name.empty() && std::ranges::all_of(name, is_bare) && name.find("->") == std::string::npos;
  return bare ? name : compact_json({name});
}

std::string print_names(const Names& names) {
  Names printed;
  for (const std::string& name : names) printed.push_back(print_name(name));
  return joined(printed, ", ");
}

}  // namespace

Program parse_program(std::string_view text, const std::string& where) {
  Program found;
  for (std::size_t number = 1; true; ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    Line line(text.substr(0, end), where + ", line " + std::to_string(number));
    if (!line.at_end()) {
      found.push_back(parse_line(line));
      line.expect_end();
    }
    if (end == text.size()) return found;
    text.remove_prefix(end + 1);
  }
}

std::string print_instruction(const Instruction& instruction) {
  return std::visit(
      Match{
          [](const Recv& item) { return "recv " + print_names(item.values) + " from " + item.device; },
          [](const Run& item) {
            return "run " + print_name(item.submodule) + " (" + print_names(item.inputs) + ") -> (" +
                   print_names(item.outputs) + ")";
          },
          [](const Send& item) { return "send " + print_names(item.values) + " to " + item.device; },
          [](const Sample& item) { return "sample " + print_name(item.logits) + " -> " + print_name(item.token); },
          [](const Add& item) { return "add " + print_names(item.terms) + " -> " + print_name(item.total); },
          [](const Cut& item) {
            return "cut " + print_name(item.whole) + " -> " + print_names(item.parts) + " along " +
                   std::to_string(item.axis);
          },
          [](const Join& item) {
            return "join " + print_names(item.parts) + " -> " + print_name(item.whole) + " along " +
                   std::to_string(item.axis);
          },
          [](const Emit& item) { return "emit " + print_names(item.values); },
          [](const Keep& item) { return "keep " + print_names(item.values); },
      },
      instruction);
}

}  // namespace partc::program
