/** One connection of ZMTP 3.1 (RFC 23) without its socket: bytes in, messages and bytes out.

| state | bytes come | time passes |
| --- | --- | --- |
| greeting | 64 bytes, judged as they come: `handshake`, or `failed` | after `handshake_s`: `failed` |
| handshake | commands, which the mechanism judges: `open`, or `failed` | after `handshake_s`: `failed` |
| open | frames: messages; PING: PONG; what is wrong: `failed` | silence of `heartbeat_s`: PING; no sign of life for twice as long behind it, or for as long as the other end's PING says: `failed` |
| failed | nothing | nothing |

A session that fails may still have something to send, which says why.
*/
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor.hpp"
#include "shell/zmtp/mechanism.hpp"

namespace partc::shell::zmtp {

enum class State { greeting, handshake, open, failed };

/** The reason of a failure. */
enum class Failure {
  none,
  lost,     // the other end was silent for too long
  refused,  // it does not admit our key, or we do not admit its own
  broken,   // it does not keep to the protocol
};

struct Limits {
  std::uint64_t frame_bytes;
  double handshake_s;
  double heartbeat_s;
};

/** A frame that has begun to come; its content will be aligned for every type. */
struct Body {
  std::shared_ptr<char[]> owner;
  char* data = nullptr;
  std::uint64_t size = 0, filled = 0;
  unsigned char flags = 0;
};

/** Times are seconds of one clock, and never go back. */
class Session {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  Session(std::unique_ptr<Mechanism> mechanism, Limits limits, double now);

  State state() const { return state_; }
  Failure failure() const { return failure_; }
  /** The name of the other end, where its key proves one; known from `open` on. */
  std::optional<std::string> user() const { return mechanism_->user(); }

  /** Take what came; messages are appended to `messages`, each of one frame or more. */
  void receive(std::string_view bytes, double now, std::vector<Frames>& messages);
  /** Append a message to what is to be sent; only while it is open. */
  void send(const Frames& frames);
  /** Take notice of the time. */
  void tick(double now);
  /** When `tick` is to be called next. */
  double deadline() const;

  /** Bytes to send, and how many of them have left. */
  std::string_view unsent() const { return std::string_view(output_).substr(sent_); }
  void sent(std::size_t size);

 private:
  void fail(Failure failure);
  void take_greeting(std::string_view& bytes);
  bool take_head(std::string_view& bytes);
  void begin_body(unsigned char flags, std::uint64_t size);
  void take_body(std::string_view& bytes, std::vector<Frames>& messages);
  void take_frame(const Body& body, std::vector<Frames>& messages);
  void take_handshake(std::string_view bytes);
  void take_command(std::string_view bytes);
  void write_command(std::string_view bytes) { write_raw(kCommand, bytes); }
  void write_raw(unsigned char flags, std::string_view bytes);

  std::unique_ptr<Mechanism> mechanism_;
  Limits limits_;
  State state_ = State::greeting;
  Failure failure_ = Failure::none;
  double now_, handshake_end_, heard_, pinged_ = kNever, dead_ = kNever;

  std::string head_;  // of the greeting or of a frame, as far as it has come
  std::optional<Body> body_;
  Frames frames_;  // of a message of which more is to come

  std::string output_;
  std::size_t sent_ = 0;
};

}  // namespace partc::shell::zmtp
