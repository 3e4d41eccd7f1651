#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "errors.hpp"
#include "shell/zmtp/commands.hpp"
#include "shell/zmtp/z85.hpp"

namespace partc::shell::zmtp {
namespace {

constexpr std::size_t kKey = 32, kMac = 16, kCookie = 96, kLongNonce = 16, kShortNonce = 8;
constexpr std::size_t kHello = 200, kWelcome = 168, kLeastInitiate = 257, kLeastReady = 30;  // whole commands, bytes
constexpr std::size_t kMessageHead = 8 + kShortNonce;                                        // the name, and a nonce
static_assert(crypto_box_PUBLICKEYBYTES == kKey && crypto_box_SECRETKEYBYTES == kKey && crypto_box_MACBYTES == kMac);

using Key = std::array<unsigned char, kKey>;

/** A key that nobody else may read: its memory is cleared. */
struct Secret {
  Key key{};
  Secret() = default;
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret() { sodium_memzero(key.data(), key.size()); }
};

const unsigned char* raw(const char* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* raw(char* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
std::string_view text(const Key& key) { return {reinterpret_cast<const char*>(key.data()), key.size()}; }

Key key_of(std::string_view bytes) {
  Key key;
  std::memcpy(key.data(), bytes.data(), key.size());
  return key;
}

/** A key in its text. */
Key decoded(const std::string& text) {
  const auto bytes = decode_z85(text);
  if (!bytes || bytes->size() != kKey)
    throw bundle_error("a key is none", "keys", "partc keys BUILD makes the keys of a build again");
  return key_of(*bytes);
}

std::string random(std::size_t size) {
  std::string bytes(size, '\0');
  randombytes_buf(bytes.data(), size);
  return bytes;
}

/** The key that two pairs have in common. */
std::optional<Secret> shared(const Key& theirs, const Secret& ours) {
  Secret found;
  if (crypto_box_beforenm(found.key.data(), theirs.data(), ours.key.data())) return {};
  return found;
}

using Nonce = std::array<unsigned char, crypto_box_NONCEBYTES>;

/** A prefix that says what is encrypted, and a number of 8 or 16 bytes: 24 in all. */
Nonce nonce_of(std::string_view prefix, std::string_view number) {
  Nonce nonce;
  std::ranges::copy(number, std::ranges::copy(prefix, nonce.begin()).out);
  return nonce;
}

/** A box is its authenticator and as many bytes as it holds. */
std::string seal(std::string_view content, const Nonce& nonce, const Secret& key) {
  std::string box(kMac + content.size(), '\0');
  crypto_box_easy_afternm(raw(box.data()), raw(content.data()), content.size(), nonce.data(), key.key.data());
  return box;
}

/** None: it was not sealed with this key and nonce. */
std::optional<std::string> unseal(std::string_view box, const Nonce& nonce, const Secret& key) {
  if (box.size() < kMac) return {};
  std::string content(box.size() - kMac, '\0');
  if (crypto_box_open_easy_afternm(raw(content.data()), raw(box.data()), box.size(), nonce.data(), key.key.data()))
    return {};
  return content;
}

/** What both ends do alike. `next_` and `last_` number the commands and frames of either direction: no nonce is used twice,
and a frame that is left out, comes again or too late is noticed (RFC 26 demands only that numbers grow). */
class Curve : public Mechanism {
 public:
  Curve(const Keys& keys, std::string_view sends, std::string_view receives) : sends_(sends), receives_(receives) {
    public_ = decoded(keys.public_key);
    secret_.key = decoded(keys.secret_key);
  }

  std::string_view name() const override { return "CURVE"; }
  std::size_t overhead() const override { return kMessageHead + kMac + 1; }

  void write(std::string& wire, Plain plain, std::string_view content) override {
    write_head(wire, 0, overhead() + content.size());
    const std::string number = next();
    wire.append("\x07MESSAGE").append(number);
    const std::size_t at = wire.size();
    wire.append(kMac, '\0');
    wire += static_cast<char>((plain.has_more ? 1 : 0) | (plain.is_command ? 2 : 0));
    wire += content;
    unsigned char* box = raw(wire.data()) + at;
    crypto_box_detached_afternm(box + kMac, box, box + kMac, 1 + content.size(), nonce_of(sends_, number).data(),
                                session_.key.data());
  }

  std::optional<Plain> read(unsigned char flags, char* body, std::size_t size) override {
    const std::string_view bytes(body, size);
    // The flags of the content are inside; commands of this name are sent as commands and as messages.
    if (flags & kMore || size < overhead() || !bytes.starts_with("\x07MESSAGE")) return {};
    const std::string_view number = bytes.substr(8, kShortNonce);
    if (!follows(number)) return {};
    unsigned char* box = raw(body) + kMessageHead;
    if (crypto_box_open_detached_afternm(box + kMac, box + kMac, box, size - kMessageHead - kMac,
                                         nonce_of(receives_, number).data(), session_.key.data()))
      return {};
    const unsigned char inner = box[kMac];
    if (inner > 2) return {};
    return Plain{inner == 1, inner == 2};
  }

 protected:
  void make_short_pair() { crypto_box_keypair(short_public_.data(), short_secret_.key.data()); }

  std::string next() {
    std::string number;
    write_number(number, next_++, kShortNonce);
    return number;
  }

  bool follows(std::string_view number) {
    const std::uint64_t came = read_number(number, kShortNonce);
    if (last_ ? came != last_ + 1 : came == 0) return false;
    last_ = came;
    return true;
  }

  Key public_, short_public_;
  Secret secret_, short_secret_;
  Secret session_;  // the short-lived keys' own, which encrypts everything behind WELCOME

 private:
  std::string_view sends_, receives_;
  std::uint64_t next_ = 1, last_ = 0;
};

class Client : public Curve {
 public:
  Client(const Keys& keys, const std::string& server)
      : Curve(keys, "CurveZMQMESSAGEC", "CurveZMQMESSAGES"), server_(decoded(key_text(keys, server))) {
    make_short_pair();
  }

  std::string begin() override {
    const auto key = shared(server_, short_secret_);
    if (!key) return {};  // a key that no pair has: the server waits for nothing, and hangs up
    first_ = *key;
    const std::string number = next();
    std::string data = std::string("\1\0", 2) + std::string(72, '\0');
    data.append(text(short_public_)).append(number);
    data += seal(std::string(64, '\0'), nonce_of("CurveZMQHELLO---", number), first_);
    return command("HELLO", data);
  }

  Step take(std::string_view bytes) override {
    const auto found = parse_command(bytes);
    if (!found) return {Step::Kind::broken, {}};
    if (found->name == "ERROR") return {Step::Kind::refused, {}};
    return is_welcome_ ? take_ready(*found, bytes.size()) : take_welcome(*found, bytes.size());
  }

 private:
  static const std::string& key_text(const Keys& keys, const std::string& server) {
    const auto key = keys.peers.find(server);
    if (key != keys.peers.end()) return key->second;
    throw bundle_error("there is no key of '" + server + "'", "keys",
                       "partc keys BUILD makes the keys of a build again");
  }

  Step take_welcome(const Command& welcome, std::size_t size) {
    if (welcome.name != "WELCOME" || size != kWelcome) return {Step::Kind::broken, {}};
    const auto content =
        unseal(welcome.data.substr(kLongNonce), nonce_of("WELCOME-", welcome.data.substr(0, kLongNonce)), first_);
    if (!content) return {Step::Kind::broken, {}};
    const Key theirs = key_of(*content);
    const auto session = shared(theirs, short_secret_), long_lived = shared(theirs, secret_);
    if (!session || !long_lived) return {Step::Kind::broken, {}};
    session_ = *session;
    is_welcome_ = true;
    const std::string vouch_number = random(kLongNonce), number = next();
    std::string proof(text(public_));
    proof += vouch_number;
    proof +=
        seal(std::string(text(short_public_)).append(text(server_)), nonce_of("VOUCH---", vouch_number), *long_lived);
    proof += metadata(Role::client);
    std::string data = content->substr(kKey) + number;
    data += seal(proof, nonce_of("CurveZMQINITIATE", number), session_);
    return {Step::Kind::waits, command("INITIATE", data)};
  }

  Step take_ready(const Command& ready, std::size_t size) {
    if (ready.name != "READY" || size < kLeastReady) return {Step::Kind::broken, {}};
    const std::string_view number = ready.data.substr(0, kShortNonce);
    const auto content = unseal(ready.data.substr(kShortNonce), nonce_of("CurveZMQREADY---", number), session_);
    if (!content || !follows(number) || !accepts(Role::client, *content)) return {Step::Kind::broken, {}};
    return {Step::Kind::stands, {}};
  }

  Key server_;
  Secret first_;  // of our short-lived key and the server's own, for HELLO and WELCOME
  bool is_welcome_ = false;
};

class Server : public Curve {
 public:
  explicit Server(const Keys& keys) : Curve(keys, "CurveZMQMESSAGES", "CurveZMQMESSAGEC"), keys_(keys) {}

  std::string begin() override { return {}; }
  std::optional<std::string> user() const override { return user_; }

  Step take(std::string_view bytes) override {
    const auto found = parse_command(bytes);
    if (!found) return {Step::Kind::broken, {}};
    return cookie_.empty() ? take_hello(*found, bytes.size()) : take_initiate(*found, bytes.size());
  }

 private:
  Step take_hello(const Command& hello, std::size_t size) {
    if (hello.name != "HELLO" || size != kHello || !hello.data.starts_with(std::string_view("\1\0", 2)))
      return {Step::Kind::broken, {}};
    client_ = key_of(hello.data.substr(74));
    const std::string_view number = hello.data.substr(106, kShortNonce), signature = hello.data.substr(114);
    const auto first = shared(client_, secret_);
    if (!first || !follows(number) || !unseal(signature, nonce_of("CurveZMQHELLO---", number), *first))
      return {Step::Kind::broken, {}};
    make_short_pair();
    const auto session = shared(client_, short_secret_);
    if (!session) return {Step::Kind::broken, {}};
    session_ = *session;
    // Whoever keeps no state while a client has not proven itself finds it in the cookie; we have it, and compare.
    cookie_ = random(kCookie);
    const std::string welcome_number = random(kLongNonce);
    const std::string box =
        seal(std::string(text(short_public_)).append(cookie_), nonce_of("WELCOME-", welcome_number), *first);
    return {Step::Kind::waits, command("WELCOME", welcome_number + box)};
  }

  Step take_initiate(const Command& initiate, std::size_t size) {
    if (initiate.name != "INITIATE" || size < kLeastInitiate) return {Step::Kind::broken, {}};
    if (sodium_memcmp(initiate.data.data(), cookie_.data(), kCookie)) return {Step::Kind::broken, {}};
    const std::string_view number = initiate.data.substr(kCookie, kShortNonce);
    const auto proof =
        unseal(initiate.data.substr(kCookie + kShortNonce), nonce_of("CurveZMQINITIATE", number), session_);
    if (!proof || !follows(number) || !is_vouched(*proof)) return {Step::Kind::broken, {}};
    const std::string name = keys_.name_of(encode_z85(std::string_view(*proof).substr(0, kKey)));
    if (name.empty()) return {Step::Kind::refused, command("ERROR", "\003400")};
    if (!accepts(Role::server, std::string_view(*proof).substr(kKey + kLongNonce + kMac + 2 * kKey)))
      return {Step::Kind::broken, {}};
    user_ = name;
    const std::string answer_number = next();
    const std::string box = seal(metadata(Role::server), nonce_of("CurveZMQREADY---", answer_number), session_);
    return {Step::Kind::stands, command("READY", answer_number + box)};
  }

  /** Whether the owner of the long-lived key says that the short-lived one is its own, and meant for us. */
  bool is_vouched(std::string_view proof) const {
    const auto key = shared(key_of(proof), short_secret_);
    const std::string_view number = proof.substr(kKey, kLongNonce);
    const std::string_view box = proof.substr(kKey + kLongNonce, kMac + 2 * kKey);
    const auto vouch = key ? unseal(box, nonce_of("VOUCH---", number), *key) : std::nullopt;
    return vouch && *vouch == std::string(text(client_)).append(text(public_));
  }

  const Keys& keys_;
  Key client_{};
  std::string cookie_;
  std::optional<std::string> user_;
};

}  // namespace

std::unique_ptr<Mechanism> make_curve_client(const Keys& keys, const std::string& server) {
  return std::make_unique<Client>(keys, server);
}

std::unique_ptr<Mechanism> make_curve_server(const Keys& keys) { return std::make_unique<Server>(keys); }

}  // namespace partc::shell::zmtp
