// How every struct is read from data and written: one template for all, over the `fields` of the generated files.
#pragma once

#include <cmath>
#include <concepts>
#include <limits>
#include <set>
#include <string>
#include <type_traits>

#include "format/complaints.hpp"
#include "format/msgpack.hpp"
#include "format/patterns.hpp"
#include "format/plain.hpp"
#include "format/text.hpp"

namespace partc {

template <class T, class Struct>
concept Is = std::same_as<std::remove_const_t<T>, Struct>;

/// How a struct travels: with the names of its fields, or in their order.
enum class Form { map, array };
/// An absent field has no value where it is not given: it is never null, and then not written.
enum class Need { required, optional, absent };

/// What holds for a field besides its type.
struct Limits {
  std::uint64_t least = 0;
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  double real_least = -std::numeric_limits<double>::infinity();
  double real_most = std::numeric_limits<double>::infinity();
  /// Characters, bytes or items.
  std::size_t shortest = 0;
  std::size_t longest = std::numeric_limits<std::size_t>::max();
  bool (*pattern)(std::string_view) = nullptr;
  /// Words between spaces; empty: any text.
  std::string_view one_of = {};
  const Limits* key = nullptr;
  const Limits* item = nullptr;
  /// Of tuples whose items differ; else `item` holds for all.
  const Limits* second = nullptr;
  const Limits* third = nullptr;
};

inline constexpr Limits anything{};

/// Whether texts may stand for bytes (in base64), as in JSON.
enum class Source { msgpack, json };

/// Holds a value against a type; errors name the place by the keys that lead to it.
class FieldReader {
 public:
  explicit FieldReader(Source source) : source_(source) {}

  void read(const Value& value, std::uint64_t& item, const Limits& limits) {
    Integer number = whole(value);
    if (number < limits.least || number > limits.most) throw wrong("a whole number in its range");
    item = static_cast<std::uint64_t>(number);
  }
  void read(const Value& value, std::int64_t& item, const Limits&) {
    Integer number = whole(value);
    constexpr Integer most = std::numeric_limits<std::int64_t>::max();
    if (number < -most - 1 || number > most) throw wrong("a whole number of 64 bits");
    item = static_cast<std::int64_t>(number);
  }
  void read(const Value& value, double& item, const Limits& limits) {
    if (const Integer* number = value.as<Integer>()) {
      item = static_cast<double>(*number);
    } else {
      item = get<double>(value, "float");
    }
    const bool is_free = std::isinf(limits.real_least) && std::isinf(limits.real_most);
    if (!is_free && !(limits.real_least <= item && item <= limits.real_most)) throw wrong("a number in its range");
  }
  void read(const Value& value, bool& item, const Limits&) { item = get<bool>(value, "bool"); }
  void read(const Value& value, std::string& item, const Limits& limits) {
    item = get<std::string>(value, "str");
    check_length(limits, [&] { return characters(item); });
    if (limits.pattern != nullptr && !limits.pattern(item)) throw wrong("another form of text");
    if (!limits.one_of.empty() && !is_word_of(item, limits.one_of))
      throw wrong("one of: " + std::string(limits.one_of));
  }
  void read(const Value& value, Bytes& item, const Limits& limits) {
    if (source_ == Source::json) {
      std::optional<std::string> found = from_base64(get<std::string>(value, "bytes"));
      if (!found) throw wrong("text in base64");
      item.data = std::move(*found);
    } else {
      item = get<Bytes>(value, "bytes");
    }
    check_length(limits, [&] { return item.data.size(); });
  }
  void read(const Value& value, Value& item, const Limits&) { item = value; }
  void read(const Value& value, Size& item, const Limits& limits) {
    if (const std::string* text = value.as<std::string>()) {
      item = *text;
      return;
    }
    std::uint64_t number = 0;
    read(value, number, limits);
    item = number;
  }
  void read(const Value& value, Fact& item, const Limits&) {
    if (const bool* truth = value.as<bool>()) {
      item = *truth;
    } else if (const Integer* number = value.as<Integer>()) {
      item = *number;
    } else if (const double* real = value.as<double>()) {
      item = *real;
    } else {
      item = get<std::string>(value, "bool | int | float | str");
    }
  }
  template <class T>
  void read(const Value& value, std::optional<T>& item, const Limits& limits) {
    if (value.is_null()) {
      item.reset();
      return;
    }
    read(value, item.emplace(), limits);
  }
  template <class T>
  void read(const Value& value, std::vector<T>& items, const Limits& limits) {
    const List& list = get<List>(value, "array");
    check_length(limits, [&] { return list.size(); });
    items.resize(list.size());
    for (std::size_t at = 0; at < list.size(); ++at) {
      T item{};
      nested("[" + std::to_string(at) + "]", [&] { read(list[at], item, limits.item ? *limits.item : anything); });
      items[at] = std::move(item);
    }
  }
  template <class A, class B>
  void read(const Value& value, std::pair<A, B>& item, const Limits& limits) {
    const List& list = get<List>(value, "array");
    if (list.size() != 2) throw wrong("`array` of length 2");
    read(list[0], item.first, limits.item ? *limits.item : anything);
    read(list[1], item.second, limits.second ? *limits.second : limits.item ? *limits.item : anything);
  }
  template <class T>
  void read(const Value& value, std::array<T, 3>& items, const Limits& limits) {
    const List& list = get<List>(value, "array");
    if (list.size() != items.size()) throw wrong("`array` of length 3");
    const Limits& first = limits.item ? *limits.item : anything;
    const std::array each{&first, limits.second ? limits.second : &first, limits.third ? limits.third : &first};
    for (std::size_t at = 0; at < items.size(); ++at)
      nested("[" + std::to_string(at) + "]", [&] { read(list[at], items[at], *each[at]); });
  }
  template <class T>
  void read(const Value& value, Map<std::string, T>& items, const Limits& limits) {
    const Object& object = get<Object>(value, "object");
    check_length(limits, [&] { return object.size(); });
    items.clear();
    for (const auto& [key, inner] : object) {
      nested(key, [&, &key = key, &inner = inner] {
        if (limits.key != nullptr && limits.key->pattern != nullptr && !limits.key->pattern(key)) {
          throw wrong("another form of key");
        }
        if (limits.key != nullptr && characters(key) > limits.key->longest) throw wrong("a shorter key");
        T item{};
        read(inner, item, limits.item ? *limits.item : anything);
        items.set(key, std::move(item));
      });
    }
  }
  template <class T>
  void read(const Value& value, T& item, const Limits&);

 private:
  template <class T>
  class Fields;

  Error wrong(const std::string& expected) const { return complaint("expected " + expected); }
  Error complaint(const std::string& text) const {
    std::string key = path_.starts_with('.') ? path_.substr(1) : path_;
    return Error(ErrorKind::bundle, (key.empty() ? "" : key + ": ") + text);
  }
  template <class T>
  const T& get(const Value& value, std::string_view expected) const {
    const T* found = value.as<T>();
    if (found == nullptr) throw wrong("`" + std::string(expected) + "`, got `" + std::string(value.kind()) + "`");
    return *found;
  }
  Integer whole(const Value& value) const { return get<Integer>(value, "int"); }
  template <class Length>
  void check_length(const Limits& limits, Length length) const {
    if (limits.shortest == 0 && limits.longest == anything.longest) return;
    const std::size_t found = length();
    if (found < limits.shortest || found > limits.longest) throw wrong("another length");
  }
  static bool is_word_of(std::string_view text, std::string_view words) {
    while (!words.empty()) {
      std::size_t end = std::min(words.find(' '), words.size());
      if (words.substr(0, end) == text) return true;
      words.remove_prefix(std::min(end + 1, words.size()));
    }
    return false;
  }
  template <class Act>
  void nested(const std::string& key, Act act) {
    const std::size_t before = path_.size();
    if (!key.starts_with('[')) path_ += '.';
    path_ += key;
    act();
    path_.resize(before);
  }

  Source source_;
  std::string path_;
};

/// Reads the fields of one struct; what is left over is refused.
template <class T>
class FieldReader::Fields {
 public:
  Fields(FieldReader& reader, const Value& value) : reader_(reader), value_(value) {}

  void begin(Form form, std::size_t count, std::string_view tag) {
    form_ = form;
    if (form == Form::array) {
      list_ = &reader_.get<List>(value_, "array");
      if (list_->size() > count) throw reader_.wrong("`array` of at most length " + std::to_string(count));
      return;
    }
    object_ = &reader_.get<Object>(value_, "object");
    found_ = tag.empty() ? 0 : object_->contains("kind");
  }
  template <class Field>
  void operator()(const char* name, Field& field, Need need, const Limits& limits) {
    const Value* value = next(name);
    if (value == nullptr) {
      if (need == Need::required) throw reader_.complaint("object missing required field `" + std::string(name) + "`");
      return;
    }
    ++found_;
    reader_.nested(name, [&] {
      if (need == Need::absent && value->is_null()) throw reader_.wrong("a value");
      reader_.read(*value, field, limits);
    });
  }
  void end(T& item) const {
    if (form_ == Form::array || object_->size() == found_) return;
    Names known;
    fields(known, item);
    for (const auto& [key, value] : *object_)
      if (!known.names.contains(key)) throw reader_.complaint("object contains unknown field `" + key + "`");
  }

 private:
  /// The names of all fields.
  struct Names {
    std::set<std::string, std::less<>> names;
    void begin(Form, std::size_t, std::string_view tag) {
      if (!tag.empty()) names.insert("kind");
    }
    template <class Field>
    void operator()(const char* name, Field&, Need, const Limits&) {
      names.insert(name);
    }
  };

  const Value* next(const char* name) {
    if (form_ == Form::map) return object_->find(name);
    return at_ < list_->size() ? &(*list_)[at_++] : nullptr;
  }

  FieldReader& reader_;
  const Value& value_;
  Form form_ = Form::map;
  const List* list_ = nullptr;
  const Object* object_ = nullptr;
  std::size_t at_ = 0;
  std::size_t found_ = 0;
};

template <class T>
void FieldReader::read(const Value& value, T& item, const Limits&) {
  Fields<T> visit(*this, value);
  fields(visit, item);
  visit.end(item);
  if constexpr (requires { check(item); }) check(item);
}

/// Writes values to a sink: `MsgpackSink`, or `ValueSink`.
template <class Sink>
class FieldWriter {
 public:
  explicit FieldWriter(Sink& sink) : sink_(sink) {}

  void write(std::uint64_t item) { sink_.whole(item); }
  void write(std::int64_t item) { sink_.whole(item); }
  void write(double item) { sink_.real(item); }
  void write(bool item) { sink_.truth(item); }
  void write(const std::string& item) { sink_.text(item); }
  void write(const Bytes& item) { sink_.bytes(item); }
  void write(const Size& item) {
    std::visit([this](const auto& part) { this->write(part); }, item);
  }
  void write(const Fact& item) {
    if (const Integer* number = std::get_if<Integer>(&item)) {
      sink_.whole(*number);
    } else if (const bool* truth = std::get_if<bool>(&item)) {
      sink_.truth(*truth);
    } else if (const double* real = std::get_if<double>(&item)) {
      sink_.real(*real);
    } else {
      sink_.text(std::get<std::string>(item));
    }
  }
  void write(const Value& item) {
    std::visit([this](const auto& part) { this->write_part(part); }, item.data);
  }
  template <class T>
  void write(const std::optional<T>& item) {
    if (item) {
      write(*item);
    } else {
      sink_.null();
    }
  }
  template <class T>
  void write(const std::vector<T>& items) {
    sink_.array(items.size());
    for (const T& item : items) write(item);
    sink_.close();
  }
  template <class A, class B>
  void write(const std::pair<A, B>& item) {
    sink_.array(2);
    write(item.first);
    write(item.second);
    sink_.close();
  }
  template <class T, std::size_t count>
  void write(const std::array<T, count>& items) {
    sink_.array(count);
    for (const T& item : items) write(item);
    sink_.close();
  }
  template <class T>
  void write(const Map<std::string, T>& items) {
    sink_.map(items.size());
    for (const auto& [key, item] : items) {
      sink_.key(key);
      write(item);
    }
    sink_.close();
  }
  template <class T>
  void write(const T& item) {
    fields(*this, item);
    sink_.close();
  }

  // -- as the visitor of `fields`

  void begin(Form form, std::size_t count, std::string_view tag) {
    is_map_ = form == Form::map;
    if (!is_map_) {
      sink_.array(count);
      return;
    }
    sink_.map(count + !tag.empty());
    if (tag.empty()) return;
    sink_.key("kind");
    sink_.text(tag);
  }
  template <class Field>
  void operator()(const char* name, const Field& field, Need need, const Limits&) {
    if constexpr (requires { field.has_value(); }) {
      if (need == Need::absent && !field.has_value()) return;
    }
    const bool is_map = is_map_;
    if (is_map) sink_.key(name);
    write(field);
    is_map_ = is_map;
  }

 private:
  void write_part(std::nullptr_t) { sink_.null(); }
  void write_part(Integer item) { sink_.whole(item); }
  template <class T>
  void write_part(const T& item) {
    write(item);
  }

  Sink& sink_;
  bool is_map_ = true;
};

/// Throws Error: naming the key that is wrong.
template <class T>
T read_struct(const Value& value, Source source) {
  T item{};
  FieldReader(source).read(value, item, anything);
  return item;
}

template <class T>
std::string to_msgpack(const T& item) {
  MsgpackSink sink;
  FieldWriter<MsgpackSink>(sink).write(item);
  return sink.take();
}

template <class T>
Value to_value(const T& item) {
  ValueSink sink;
  FieldWriter<ValueSink>(sink).write(item);
  return sink.take();
}

}  // namespace partc
