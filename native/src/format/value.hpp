// Data as JSON and msgpack have them, before they are held against a struct.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "format/map.hpp"

namespace partc {

/// Holds every whole number of JSON and msgpack, and sums and products of sizes.
__extension__ typedef __int128 Integer;

/// Bytes, as opposed to text.
struct Bytes {
  std::string data;
  auto operator<=>(const Bytes&) const = default;
};

struct Value;
using List = std::vector<Value>;
/// A key stands once; the readers see to it.
using Object = Map<std::string, Value>;

struct Value {
  std::variant<std::nullptr_t, bool, Integer, double, std::string, Bytes, List, Object> data = nullptr;

  bool operator==(const Value& other) const = default;

  template <class T>
  const T* as() const {
    return std::get_if<T>(&data);
  }
  bool is_null() const { return std::holds_alternative<std::nullptr_t>(data); }
  /// `int`, `str`, …: the name of its kind in messages.
  std::string_view kind() const;
};

}  // namespace partc

template <>
struct std::hash<partc::Bytes> {
  std::size_t operator()(const partc::Bytes& bytes) const { return std::hash<std::string>{}(bytes.data); }
};
