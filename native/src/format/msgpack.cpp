#include "format/msgpack.hpp"

#include <bit>
#include <limits>

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/text.hpp"

namespace partc {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  Value whole() {
    Value found = value(0);
    if (at_ != bytes_.size()) throw wrong("trailing bytes");
    return found;
  }

 private:
  Error wrong(const std::string& what) const { return refused(what + " at byte " + std::to_string(at_)); }

  std::string_view take(std::size_t size) {
    if (bytes_.size() - at_ < size) throw wrong("truncated");
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  std::uint64_t number(std::size_t size) {
    std::uint64_t found = 0;
    for (const char byte : take(size)) found = found << 8 | static_cast<unsigned char>(byte);
    return found;
  }
  Value negative(std::size_t size) {
    const std::uint64_t found = number(size);
    const unsigned spare = static_cast<unsigned>(64 - 8 * size);
    return {static_cast<Integer>(static_cast<std::int64_t>(found << spare) >> spare)};
  }

  Value value(std::size_t level) {
    const auto head = static_cast<unsigned>(number(1));
    if (head < 0x80) return {static_cast<Integer>(head)};
    if (head >= 0xE0) return {static_cast<Integer>(head) - 256};
    if (head < 0x90) return map(head & 15, level);
    if (head < 0xA0) return array(head & 15, level);
    if (head < 0xC0) return text(head & 31);
    switch (head) {
      case 0xC0: return {nullptr};
      case 0xC2: return {false};
      case 0xC3: return {true};
      case 0xC4: return bytes(number(1));
      case 0xC5: return bytes(number(2));
      case 0xC6: return bytes(number(4));
      case 0xCA: return {static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(number(4))))};
      case 0xCB: return {std::bit_cast<double>(number(8))};
      case 0xCC: return {static_cast<Integer>(number(1))};
      case 0xCD: return {static_cast<Integer>(number(2))};
      case 0xCE: return {static_cast<Integer>(number(4))};
      case 0xCF: return {static_cast<Integer>(number(8))};
      case 0xD0: return negative(1);
      case 0xD1: return negative(2);
      case 0xD2: return negative(4);
      case 0xD3: return negative(8);
      case 0xD9: return text(number(1));
      case 0xDA: return text(number(2));
      case 0xDB: return text(number(4));
      case 0xDC: return array(number(2), level);
      case 0xDD: return array(number(4), level);
      case 0xDE: return map(number(2), level);
      case 0xDF: return map(number(4), level);
      default: throw wrong("no such type");
    }
  }
  Value bytes(std::size_t size) { return {Bytes{std::string(take(size))}}; }
  Value text(std::size_t size) {
    const std::string_view found = take(size);
    if (!is_utf8(found)) throw wrong("text that is not UTF-8");
    return {std::string(found)};
  }
  /// Every item takes a byte at least, so a number that is too large is refused before memory is taken for it.
  void check(std::size_t items, std::size_t level) const {
    if (items > bytes_.size() - at_) throw wrong("truncated");
    if (level >= MOST_LEVELS) throw wrong("nested too deeply");
  }
  Value array(std::size_t size, std::size_t level) {
    check(size, level);
    List list;
    list.reserve(std::min<std::size_t>(size, 4096));
    for (std::size_t index = 0; index < size; ++index) list.push_back(value(level + 1));
    return {std::move(list)};
  }
  Value map(std::size_t size, std::size_t level) {
    check(size, level);
    Object object;
    for (std::size_t index = 0; index < size; ++index) {
      Value key = value(level + 1);
      const std::string* name = key.as<std::string>();
      if (name == nullptr) throw wrong("a key that is no text");
      if (object.contains(*name)) throw wrong("a key that stands twice");
      object.set(*name, value(level + 1));
    }
    return {std::move(object)};
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace

Value read_msgpack(std::string_view bytes) { return Reader(bytes).whole(); }

void MsgpackSink::number(std::uint64_t item, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) put(static_cast<unsigned>(item >> shift & 0xFF));
}

void MsgpackSink::whole(Integer item) {
  if (item < 0) {
    const auto bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(item));
    if (item >= -32) {
      put(static_cast<unsigned>(bits & 0xFF));
    } else if (item >= std::numeric_limits<std::int8_t>::min()) {
      put(0xD0), number(bits & 0xFF, 1);
    } else if (item >= std::numeric_limits<std::int16_t>::min()) {
      put(0xD1), number(bits & 0xFFFF, 2);
    } else if (item >= std::numeric_limits<std::int32_t>::min()) {
      put(0xD2), number(bits & 0xFFFFFFFF, 4);
    } else {
      put(0xD3), number(bits, 8);
    }
    return;
  }
  const auto size = static_cast<std::uint64_t>(item);
  if (size < 0x80) {
    put(static_cast<unsigned>(size));
  } else if (size < 0x100) {
    put(0xCC), number(size, 1);
  } else if (size < 0x10000) {
    put(0xCD), number(size, 2);
  } else if (size < 0x100000000) {
    put(0xCE), number(size, 4);
  } else {
    put(0xCF), number(size, 8);
  }
}

void MsgpackSink::real(double item) {
  put(0xCB);
  number(std::bit_cast<std::uint64_t>(item), 8);
}

void MsgpackSink::head(std::size_t size, unsigned few, std::size_t most_few, unsigned with_8, unsigned with_16) {
  if (size <= most_few) {
    put(few | static_cast<unsigned>(size));
  } else if (with_8 != 0 && size < 0x100) {
    put(with_8), number(size, 1);
  } else if (size < 0x10000) {
    put(with_16), number(size, 2);
  } else {
    put(with_16 + 1), number(size, 4);
  }
}

void MsgpackSink::text(std::string_view item) {
  head(item.size(), 0xA0, 31, 0xD9, 0xDA);
  out_ += item;
}

void MsgpackSink::bytes(const Bytes& item) {
  const std::size_t size = item.data.size();
  if (size < 0x100) {
    put(0xC4), number(size, 1);
  } else if (size < 0x10000) {
    put(0xC5), number(size, 2);
  } else {
    put(0xC6), number(size, 4);
  }
  out_ += item.data;
}

void MsgpackSink::array(std::size_t size) { head(size, 0x90, 15, 0, 0xDC); }
void MsgpackSink::map(std::size_t size) { head(size, 0x80, 15, 0, 0xDE); }

void ValueSink::close() {
  Value done = std::move(open_.back().value);
  open_.pop_back();
  put(std::move(done));
}

void ValueSink::put(Value item) {
  if (open_.empty()) {
    whole_ = std::move(item);
  } else if (List* list = std::get_if<List>(&open_.back().value.data)) {
    list->push_back(std::move(item));
  } else {
    std::get<Object>(open_.back().value.data).set(open_.back().key, std::move(item));
  }
}

}  // namespace partc
