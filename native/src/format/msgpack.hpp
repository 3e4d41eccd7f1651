// A strict reader and a writer of msgpack: no extensions, no key twice, keys are texts, and nothing behind the value.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "format/value.hpp"

namespace partc {

/// Throws Error: with what is wrong, and at which byte.
Value read_msgpack(std::string_view bytes);

/// Writes values one after the other; numbers in their shortest form.
class MsgpackSink {
 public:
  void null() { put(0xC0); }
  void truth(bool item) { put(item ? 0xC3 : 0xC2); }
  /// From -2^63 to 2^64 - 1.
  void whole(Integer item);
  void real(double item);
  void text(std::string_view item);
  void bytes(const Bytes& item);
  void array(std::size_t size);
  void map(std::size_t size);
  void key(std::string_view item) { text(item); }
  void close() {}
  std::string take() { return std::move(out_); }

 private:
  void put(unsigned byte) { out_ += static_cast<char>(byte); }
  void number(std::uint64_t item, int bytes);
  void head(std::size_t size, unsigned few, std::size_t most_few, unsigned with_8, unsigned with_16);

  std::string out_;
};

/// Makes a `Value` of what is written to it.
class ValueSink {
 public:
  void null() { put({nullptr}); }
  void truth(bool item) { put({item}); }
  void whole(Integer item) { put({item}); }
  void real(double item) { put({item}); }
  void text(std::string_view item) { put({std::string(item)}); }
  void bytes(const Bytes& item) { put({item}); }
  void array(std::size_t) { open_.push_back({{List()}, {}}); }
  void map(std::size_t) { open_.push_back({{Object()}, {}}); }
  void key(std::string_view item) { open_.back().key = item; }
  void close();
  Value take() { return std::move(whole_); }

 private:
  struct Open {
    Value value;
    std::string key;
  };
  void put(Value item);

  std::vector<Open> open_;
  Value whole_;
};

}  // namespace partc
