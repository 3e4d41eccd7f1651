// A member of a ring that lies behind a valid greeting: the others neither end nor keep what it sends, and serve
// again.
//
// Four cores in virtual time, one of which is heard: the input says, four bytes a message, what becomes of all that
// this device would send. It is honest inside, so that its lies come at any depth of the protocol. Then it leaves, an honest
// one takes its place, and a request must get the tokens that it gets where nobody lies.
//
// The first byte: 3 the device that lies, of b, c, d; 4 a device may be done without; 8 a second request is under
// way, too.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "errors.hpp"
#include "format/codec.hpp"
#include "format/msgpack.hpp"
#include "format/structs.hpp"
#include "fuzz.hpp"
#include "parts/ring.hpp"
#include "parts/values.hpp"

extern "C" std::size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));

using namespace partc;
using core::Origin;
using fuzz::Said;

namespace {

constexpr double kLiesS = 40.0, kHealsS = 150.0;
constexpr std::uint64_t kMostTurns = 60'000;
constexpr std::size_t kMostKnown = 64, kMostRepeated = 256, kMostBytes = 32 << 20, kLie = 4;
const std::vector<std::uint64_t> kPrompt{4, 5, 6, 7, 8};

/** Values that a field is given, besides those of other messages. */
const std::vector<Value>& odd_values() {
  const Integer one = 1;
  // clang-format off
  static const std::vector<Value> values{
      {Integer{0}}, {one}, {Integer{2}}, {Integer{-1}}, {one << 31}, {one << 53}, {(one << 62) - 1}, {one << 62},
      {(one << 63) - 1}, {one << 63}, {(one << 64) - 1}, {std::numeric_limits<double>::quiet_NaN()},
      {std::numeric_limits<double>::infinity()}, {-1.0}, {1e308}, {nullptr}, {true}, {false}, {std::string()},
      {std::string("a")}, {std::string("b")}, {std::string("c")}, {std::string("d")}, {std::string("client")},
      {std::string("p0")}, {std::string("p5")}, {std::string("v0")}, {std::string("token")}, {std::string("prefill")},
      {std::string("decode")}, {std::string("127.0.0.1:9")}, {std::string(70, 'x')}, {Bytes{std::string(16, '\0')}},
      {Bytes{std::string(32, '\0')}}, {Bytes{}}, {List{}}, {List{{one}, {one}}}, {List(1000, {Integer{0}})}, {Object{}}};
  // clang-format on
  return values;
}

/** A header with one of its parts replaced; unchanged where it is none. */
std::string altered(const std::string& header, unsigned part, const Value& instead) {
  try {
    Value value = read_msgpack(header);
    std::vector<Value*> parts;
    fuzz::collect(value, parts);
    *parts[part % parts.size()] = Value(instead);
    return to_msgpack(value);
  } catch (const Error&) {
    return header;
  }
}

/** What the input makes of the words of one device. */
class Liar {
 public:
  Liar(fuzz::Ring& ring, std::string_view script) : ring_(ring), script_(script) {}

  bool is_done() const { return script_.size() < kLie; }

  void hear(const fuzz::Participant& sender, const Origin& origin, Said said) {
    keep(said);
    if (is_done() || is_lying_) return ring_.network.carry(sender, origin, said);
    const std::string_view lie = next(kLie);
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(lie[at]); };
    is_lying_ = true;
    tell(sender, origin, std::move(said), byte(0) % 12, {byte(1), byte(2), byte(3)});
    is_lying_ = false;
  }

 private:
  using Numbers = std::array<unsigned char, 3>;

  std::string_view next(std::size_t size) {
    const std::string_view found = script_.substr(0, size);
    script_.remove_prefix(found.size());
    return found;
  }
  void keep(const Said& said) {
    if (known_.size() < kMostKnown) known_.push_back(said);
    else known_[kept_++ % kMostKnown] = said;
  }
  /** One of the odd values, or a part of a message that was sent. */
  Value odd(const Numbers& how) {
    if (how[1] < 192) return odd_values()[how[1] % odd_values().size()];
    Value value = read_msgpack(known_[how[2] % known_.size()].header);
    std::vector<Value*> parts;
    fuzz::collect(value, parts);
    return *parts[how[1] % parts.size()];
  }
  static Frames frames(Frames given, const Numbers& how) {
    const auto filled = [&](std::size_t size) { return Frame::copy(std::string(size, static_cast<char>(how[2]))); };
    if (how[0] % 4 == 0 || given.empty()) given.push_back(filled(how[1] * 8u));
    else if (how[0] % 4 == 1) given.pop_back();
    else if (how[0] % 4 == 2) given.front() = given.front().part(0, given.front().size * how[1] / 256);
    else given.front() = filled(given.front().size);
    return given;
  }

  void tell(const fuzz::Participant& sender, const Origin& origin, Said said, unsigned kind, const Numbers& how) {
    const auto carry = [&](const Origin& to, const Said& what) { ring_.network.carry(sender, to, what); };
    const std::vector<Origin> origins = ring_.network.origins(sender);
    const Origin other = origins.empty() ? origin : origins[how[0] % origins.size()];
    const Said replay = known_[how[1] % known_.size()];
    switch (kind) {
      case 0:
      case 1: return carry(origin, said);
      case 2: return;
      case 3: return carry(origin, said), carry(origin, said);
      case 4: return carry(origin, {altered(said.header, how[0], odd(how)), said.frames});
      case 5: return carry(origin, said), carry(origin, {altered(said.header, how[0], odd(how)), said.frames});
      case 6: return carry(origin, said), carry(other, replay);
      case 7: return carry(origin, said), carry(other, {altered(replay.header, how[2], odd(how)), replay.frames});
      case 8: return carry(origin, {said.header, frames(said.frames, how)});
      case 9: {
        const std::size_t times = std::min(kMostRepeated, std::size_t{1} << how[2] % 9);
        for (std::size_t time = 0; time < times; ++time) carry(other, replay);
        return carry(origin, said);
      }
      case 10: return carry(origin, said), carry(other, {std::string(next(how[1])), {}});
      default: return carry(origin, said), ring_.network.hang_up(sender);
    }
  }

  fuzz::Ring& ring_;
  std::string_view script_;
  std::vector<Said> known_;
  std::size_t kept_ = 0;
  bool is_lying_ = false;
};

/** Tokens of the request where nobody lies. */
const std::vector<std::uint64_t>& expected() {
  static const std::vector<std::uint64_t> tokens = [] {
    fuzz::Ring ring(fuzz::the_rings(), false);
    ring.client().ask(kPrompt, 6);
    ring.run(20.0, kMostTurns, [&] { return !ring.client().answers.empty(); });
    return ring.client().answers.at(0);
  }();
  return tokens;
}

/** Ask until a request has come to its end; one that was begun while the change was under way may fail. */
bool is_served(fuzz::Ring& ring) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    const std::size_t answers = ring.client().answers.size(), failures = ring.client().failures;
    ring.client().ask(kPrompt, 6);
    const auto has_ended = [&] { return ring.client().answers.size() > answers || ring.client().failures > failures; };
    ring.run(ring.clock.now + kHealsS, kMostTurns, has_ended);
    if (ring.client().answers.size() > answers && ring.client().answers.back() == expected()) return true;
  }
  return false;
}

/** 0 without a sanitizer. */
std::size_t allocated() {
  return __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes() : 0;
}

/** One life of the ring; `before`: bytes that were allocated before it. */
void live(std::string_view input, std::size_t before) {
  const unsigned flags = static_cast<unsigned char>(input.front());
  const std::string name(1, "bcdb"[flags & 3]);
  fuzz::Ring ring(fuzz::the_rings(), flags & 4);
  Liar liar(ring, input.substr(1));
  ring.network.heard = &ring.node(name);
  ring.network.hook = [&](const fuzz::Participant& sender, const Origin& origin, Said said) {
    liar.hear(sender, origin, std::move(said));
  };
  ring.client().ask(kPrompt, 12);
  if (flags & 8) ring.client().ask({9, 10, 11}, 40);
  ring.run(kLiesS, kMostTurns, [&] { return liar.is_done(); });
  ring.network.heard = nullptr;
  ring.restart(name);
  const std::size_t asked = flags & 8 ? 2 : 1;
  const auto have_ended = [&] { return ring.client().answers.size() + ring.client().failures == asked; };
  ring.run(ring.clock.now + kHealsS, kMostTurns, have_ended);
  for (const auto& [other, role] : fuzz::the_rings().roles) fuzz::require(ring.node(other).is_alive);
  fuzz::require(is_served(ring));
  fuzz::require(allocated() < before + kMostBytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  expected();
  live(fuzz::text_of(data, size), allocated());
  return 0;
}
