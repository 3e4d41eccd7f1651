/** Security mechanisms of ZMTP 3.1 (RFC 23): the handshake of a connection, and the frames that it protects.

| mechanism | handshake | frames |
| --- | --- | --- |
| NULL | both ends send READY | as they are |
| CURVE (RFC 26) | client: HELLO, INITIATE; server: WELCOME, READY, or ERROR for a key that it does not know | boxes |
*/
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shell/keys.hpp"

namespace partc::shell::zmtp {

/** Flags in the first byte of a frame. */
inline constexpr unsigned char kMore = 1, kLong = 2, kCommand = 4;

/** The two ends of a connection, and what kind of socket each is. */
enum class Role {
  client,  // DEALER: it connected
  server,  // ROUTER: it was connected to
};

/** What a command of the other end led to. */
struct Step {
  enum class Kind {
    waits,    // for the next command
    stands,   // the handshake is complete
    refused,  // one end does not know the key of the other
    broken,   // the other end does not keep to the protocol, or uses other keys
  };
  Kind kind = Kind::waits;
  /** A command to send; empty: none. */
  std::string answer;
};

/** What the body of a frame holds. */
struct Plain {
  bool has_more = false, is_command = false;
};

/** One end of one connection. */
class Mechanism {
 public:
  virtual ~Mechanism() = default;

  /** As the greeting names it. */
  virtual std::string_view name() const = 0;
  /** The command with which this end begins; empty: it waits. */
  virtual std::string begin() = 0;
  /** Take a command of the handshake. */
  virtual Step take(std::string_view command) = 0;
  /** The name of the other end, where its key proves one. */
  virtual std::optional<std::string> user() const { return {}; }

  /** Bytes that stand before the content in the body of a frame. */
  virtual std::size_t overhead() const = 0;
  /** Append a frame to what is to be sent. */
  virtual void write(std::string& wire, Plain plain, std::string_view content) = 0;
  /** Uncover the content of a frame in place; none: it is not from the other end, or was there before. */
  virtual std::optional<Plain> read(unsigned char flags, char* body, std::size_t size) = 0;
};

/** No protection. */
std::unique_ptr<Mechanism> make_null(Role role);
/** CURVE towards a device of our peers. Throws a bundle error: there is no key of it, or a key is none. */
std::unique_ptr<Mechanism> make_curve_client(const Keys& keys, const std::string& server);
/** CURVE that admits our peers; `keys` must outlive it. Throws a bundle error: a key is none. */
std::unique_ptr<Mechanism> make_curve_server(const Keys& keys);

/** Append the head of a frame with a body of `size` bytes. */
void write_head(std::string& wire, unsigned char flags, std::uint64_t size);

}  // namespace partc::shell::zmtp
