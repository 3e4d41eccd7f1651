// A reader of JSON, as much of it as a bundle of partc has: no escapes but \" and \\, whole numbers of 64 bits.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace partc {

/** A value; what is asked of it in vain throws. */
struct Json {
  std::string text;  // of a string, or the letters of a number, true, false, null
  std::vector<Json> items;
  std::map<std::string, Json> fields;

  const Json& operator[](const std::string& name) const {
    const auto found = fields.find(name);
    if (found == fields.end()) throw std::runtime_error("no " + name + " in the JSON");
    return found->second;
  }
  const Json& operator[](size_t place) const { return items.at(place); }
  int64_t number() const { return std::stoll(text); }
  std::vector<int64_t> numbers() const {
    std::vector<int64_t> values;
    for (const Json& item : items) values.push_back(item.number());
    return values;
  }
};

class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : at_(text.data()), end_(text.data() + text.size()) {}

  Json read() {
    Json value;
    switch (peek()) {
      case '{':
        for (next(); peek() != '}'; skip(',')) {
          const std::string name = word();
          skip(':');
          value.fields.emplace(name, read());
        }
        next();
        break;
      case '[':
        for (next(); peek() != ']'; skip(',')) value.items.push_back(read());
        next();
        break;
      case '"':
        value.text = word();
        break;
      default:
        while (at_ < end_ && !std::strchr(",]} \n", *at_)) value.text += *at_++;
    }
    return value;
  }

 private:
  char peek() {
    while (at_ < end_ && std::strchr(" \n\r\t", *at_)) ++at_;
    if (at_ == end_) throw std::runtime_error("the JSON ends too early");
    return *at_;
  }
  char next() { return peek(), *at_++; }
  void skip(char mark) {
    if (peek() == mark) ++at_;
  }
  std::string word() {
    std::string letters;
    for (next(); at_ < end_ && *at_ != '"'; ++at_) {
      if (*at_ == '\\') ++at_;
      letters += *at_;
    }
    next();
    return letters;
  }

  const char *at_, *end_;
};

inline Json read_json(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  if (text.str().empty()) throw std::runtime_error("cannot read " + path);
  return JsonReader(text.str()).read();
}

}  // namespace partc
