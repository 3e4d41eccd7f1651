// ZMTP: what an end sends, before and behind its handshake, in one piece and in many.
//
// The first byte: 1 the session is the server; 2 CURVE; 4 the handshake was done, and what follows is sealed by the other
// end where there is CURVE: pieces of a byte of flags, a byte of length, and so many bytes. The second byte is the size of
// the pieces in which bytes come, 0: all at once.
#include <sodium.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz.hpp"
#include "shell/keys.hpp"
#include "shell/zmtp/session.hpp"
#include "shell/zmtp/z85.hpp"

using namespace partc;
using shell::Keys;
using namespace shell::zmtp;

namespace {

constexpr Limits kLimits{4096, 10.0, 2.5};

/** The keys of a device with a fixed seed. */
Keys keys_of(unsigned char seed) {
  std::array<unsigned char, crypto_box_SEEDBYTES> seeds{seed};
  std::string open(crypto_box_PUBLICKEYBYTES, '\0'), secret(crypto_box_SECRETKEYBYTES, '\0');
  crypto_box_seed_keypair(reinterpret_cast<unsigned char*>(open.data()),
                          reinterpret_cast<unsigned char*>(secret.data()), seeds.data());
  return {shell::encode_z85(open), shell::encode_z85(secret), {}};
}

struct Pair {
  Keys server, client;
  Pair() {
    fuzz::require(sodium_init() >= 0);
    server = keys_of(1);
    client = keys_of(2);
    server.peers["client"] = client.public_key;
    client.peers["server"] = server.public_key;
  }
};

std::unique_ptr<Mechanism> mechanism(const Pair& pair, Role role, bool is_curve) {
  if (!is_curve) return make_null(role);
  return role == Role::server ? make_curve_server(pair.server) : make_curve_client(pair.client, "server");
}

/** What a session made of bytes. */
struct Outcome {
  State state;
  std::vector<std::string> texts;  // of all frames, and an empty one behind each message
  auto operator<=>(const Outcome&) const = default;
};

void take(Session& session, std::string_view bytes, std::size_t piece, std::vector<Frames>& messages) {
  for (double now = 0.0; !bytes.empty(); now += 1e-6) {
    const std::string_view some = bytes.substr(0, piece ? piece : bytes.size());
    bytes.remove_prefix(some.size());
    session.receive(some, now, messages);
    session.tick(now);
  }
}

Outcome outcome(const Session& session, const std::vector<Frames>& messages) {
  Outcome found{session.state(), {}};
  for (const Frames& frames : messages) {
    fuzz::require(!frames.empty());
    for (const Frame& frame : frames) {
      fuzz::require(frame.size <= kLimits.frame_bytes && reinterpret_cast<std::uintptr_t>(frame.data) % 64 == 0);
      found.texts.emplace_back(frame.text());
    }
    found.texts.emplace_back();
  }
  return found;
}

/** Pass on what one session has to send. */
void pass(Session& from, Session& to) {
  std::vector<Frames> none;
  const std::string bytes(from.unsent());
  from.sent(bytes.size());
  to.receive(bytes, 0.0, none);
}

/** Both ends up to the end of their handshake, and the mechanism of the other end, which seals. */
struct Opened {
  Session session;
  std::string output;

  Opened(const Pair& pair, Role role, bool is_curve, std::string_view pieces)
      : session(mechanism(pair, role, is_curve), kLimits, 0.0) {
    auto owned = mechanism(pair, role == Role::server ? Role::client : Role::server, is_curve);
    Mechanism& other = *owned;
    Session peer(std::move(owned), kLimits, 0.0);
    for (int turn = 0; turn < 4; ++turn) {
      pass(session, peer);
      pass(peer, session);
    }
    fuzz::require(session.state() == State::open && peer.state() == State::open);
    fuzz::require(!is_curve || role == Role::client || session.user() == "client");
    while (pieces.size() >= 2) {
      const auto flags = static_cast<unsigned char>(pieces[0]);
      const std::string_view content = pieces.substr(2, static_cast<unsigned char>(pieces[1]));
      pieces.remove_prefix(2 + content.size());
      other.write(output, {(flags & 1) != 0, (flags & 2) != 0}, content);
      if (flags & 128 && !output.empty()) output.back() ^= 1;  // damaged on the way
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Pair pair;
  if (size < 2) return 0;
  const Role role = data[0] & 1 ? Role::server : Role::client;
  const bool is_curve = data[0] & 2, is_open = data[0] & 4;
  const std::string_view bytes = fuzz::text_of(data + 2, size - 2);
  std::vector<Frames> messages, whole;
  if (is_open) {
    Opened end(pair, role, is_curve, bytes);
    take(end.session, end.output, data[1], messages);
    outcome(end.session, messages);
    return 0;
  }
  Session session(mechanism(pair, role, is_curve), kLimits, 0.0), other(mechanism(pair, role, is_curve), kLimits, 0.0);
  take(session, bytes, data[1], messages);
  take(other, bytes, 0, whole);
  fuzz::require(outcome(session, messages) == outcome(other, whole));
  fuzz::require(session.state() != State::open || !is_curve);
  return 0;
}
