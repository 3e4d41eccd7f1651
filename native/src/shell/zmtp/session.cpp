#include "shell/zmtp/session.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "shell/zmtp/commands.hpp"

namespace partc::shell::zmtp {
namespace {

constexpr std::size_t kGreeting = 64, kMechanism = 20;   // bytes
constexpr std::size_t kVersion = 10, kMechanismAt = 12;  // places in it
constexpr std::uint64_t kMostHandshakeBytes = 1024;      // of a command of somebody who may be anybody
constexpr std::size_t kMostFrames = 65'536;              // of one message
constexpr std::size_t kAlignment = 64;                   // bytes
constexpr std::size_t kMostContext = 16;                 // bytes of a PING, which come back in its PONG
constexpr std::size_t kMostUnsent = 1 << 20;             // bytes, behind which no PONG is queued
constexpr std::size_t kKeptBytes = 1 << 20;              // memory for output that is kept for the next one
constexpr double kTtlS = 0.1;                            // unit of the time that a PING tells

std::string greeting(std::string_view mechanism) {
  std::string bytes("\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01", kMechanismAt);
  bytes += mechanism;
  bytes.resize(kGreeting, '\0');
  return bytes;
}

/** Whether a greeting may be one, as far as it has come. */
bool may_greet(std::string_view bytes, std::string_view mechanism) {
  const auto at = [&](std::size_t place) { return static_cast<unsigned char>(bytes[place]); };
  if (!bytes.empty() && at(0) != 0xff) return false;
  if (bytes.size() > 9 && at(9) != 0x7f) return false;
  if (bytes.size() > kVersion && at(kVersion) < 3) return false;
  std::string expected(mechanism);
  expected.resize(kMechanism, '\0');
  const std::string_view came = bytes.substr(std::min(kMechanismAt, bytes.size())).substr(0, kMechanism);
  return expected.starts_with(came);
}

}  // namespace

Session::Session(std::unique_ptr<Mechanism> mechanism, Limits limits, double now)
    : mechanism_(std::move(mechanism)),
      limits_(limits),
      now_(now),
      handshake_end_(now + limits.handshake_s),
      heard_(now),
      output_(greeting(mechanism_->name())) {}

void Session::receive(std::string_view bytes, double now, std::vector<Frames>& messages) {
  now_ = heard_ = now;
  pinged_ = dead_ = kNever;
  if (state_ == State::greeting) take_greeting(bytes);
  while (!bytes.empty() && state_ != State::failed)
    if (body_ || take_head(bytes)) take_body(bytes, messages);
}

void Session::fail(Failure failure) {
  state_ = State::failed;
  failure_ = failure;
  frames_.clear();
  body_.reset();
}

void Session::take_greeting(std::string_view& bytes) {
  const std::size_t size = std::min(bytes.size(), kGreeting - head_.size());
  head_ += bytes.substr(0, size);
  bytes.remove_prefix(size);
  if (!may_greet(head_, mechanism_->name())) return fail(Failure::broken);
  if (head_.size() < kGreeting) return;
  head_.clear();
  state_ = State::handshake;
  if (const std::string first = mechanism_->begin(); !first.empty()) write_command(first);
}

/** Whether the head of a frame is whole; then its body begins. */
bool Session::take_head(std::string_view& bytes) {
  const auto missing = [&] {
    const std::size_t whole = head_.empty() ? 1 : head_[0] & kLong ? 9 : 2;
    return whole - head_.size();
  };
  while (missing() > 0) {
    if (bytes.empty()) return false;
    const std::size_t size = std::min(missing(), bytes.size());
    head_ += bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
  const auto flags = static_cast<unsigned char>(head_[0]);
  const std::uint64_t size = read_number(std::string_view(head_).substr(1), head_.size() - 1);
  head_.clear();
  begin_body(flags, size);
  return state_ != State::failed;
}

void Session::begin_body(unsigned char flags, std::uint64_t size) {
  const bool is_handshake = state_ == State::handshake;
  const std::uint64_t most = is_handshake ? kMostHandshakeBytes : limits_.frame_bytes + mechanism_->overhead();
  if (flags > (kMore | kLong | kCommand) || size > most) return fail(Failure::broken);
  if (is_handshake && (flags & ~kLong) != kCommand) return fail(Failure::broken);
  body_ = Body{{}, nullptr, size, 0, flags};
  try {
    // The system gives large memory page by page as it is written, so that a length alone takes none.
    body_->owner = std::make_shared_for_overwrite<char[]>(size + kAlignment);
  } catch (const std::bad_alloc&) {
    return fail(Failure::broken);
  }
  const std::size_t content = is_handshake ? 0 : mechanism_->overhead();
  const std::size_t past = (reinterpret_cast<std::uintptr_t>(body_->owner.get()) + content) % kAlignment;
  body_->data = body_->owner.get() + (kAlignment - past) % kAlignment;
}

void Session::take_body(std::string_view& bytes, std::vector<Frames>& messages) {
  const std::size_t size = std::min<std::uint64_t>(bytes.size(), body_->size - body_->filled);
  if (size) std::memcpy(body_->data + body_->filled, bytes.data(), size);
  bytes.remove_prefix(size);
  body_->filled += size;
  if (body_->filled < body_->size) return;
  const Body body = *std::exchange(body_, {});
  if (state_ == State::handshake) take_handshake({body.data, body.size});
  else take_frame(body, messages);
}

void Session::take_handshake(std::string_view bytes) {
  const Step step = mechanism_->take(bytes);
  if (!step.answer.empty()) write_command(step.answer);
  switch (step.kind) {
    case Step::Kind::waits: return;
    case Step::Kind::stands: state_ = State::open; return;
    case Step::Kind::refused: return fail(Failure::refused);
    case Step::Kind::broken: return fail(Failure::broken);
  }
}

void Session::take_frame(const Body& body, std::vector<Frames>& messages) {
  const auto plain = mechanism_->read(body.flags, body.data, body.size);
  if (!plain || (plain->is_command && plain->has_more)) return fail(Failure::broken);
  const char* content = body.data + mechanism_->overhead();
  const std::size_t size = body.size - mechanism_->overhead();
  if (plain->is_command) return take_command({content, size});
  if (frames_.size() == kMostFrames) return fail(Failure::broken);
  frames_.push_back({body.owner, reinterpret_cast<const std::byte*>(content), size});
  if (!plain->has_more) messages.push_back(std::exchange(frames_, {}));
}

/** Commands may stand between the frames of a message; those that nobody knows mean nothing. */
void Session::take_command(std::string_view bytes) {
  const auto found = parse_command(bytes);
  if (!found) return fail(Failure::broken);
  if (found->name != "PING") return;
  if (found->data.size() < 2 || found->data.size() > 2 + kMostContext) return fail(Failure::broken);
  if (const std::uint64_t ttl = read_number(found->data, 2); ttl > 0) dead_ = now_ + kTtlS * static_cast<double>(ttl);
  // Who asks without reading the answers gets no more of them.
  if (unsent().size() < kMostUnsent) mechanism_->write(output_, {false, true}, command("PONG", found->data.substr(2)));
}

void Session::send(const Frames& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i)
    mechanism_->write(output_, {i + 1 < frames.size(), false}, frames[i].text());
}

void Session::write_raw(unsigned char flags, std::string_view bytes) {
  write_head(output_, flags, bytes.size());
  output_ += bytes;
}

void Session::sent(std::size_t size) {
  sent_ += size;
  if (2 * sent_ < output_.size()) return;
  output_.erase(0, sent_);
  sent_ = 0;
  if (output_.empty() && output_.capacity() > kKeptBytes) output_ = {};
}

void Session::tick(double now) {
  now_ = now;
  if (now < deadline()) return;
  if (state_ != State::open || now >= dead_ || pinged_ != kNever) return fail(Failure::lost);
  pinged_ = now;
  mechanism_->write(output_, {false, true}, command("PING", std::string_view("\0\0", 2)));
}

double Session::deadline() const {
  if (state_ == State::failed) return kNever;
  if (state_ != State::open) return handshake_end_;
  const double alive = pinged_ == kNever ? heard_ + limits_.heartbeat_s : pinged_ + 2 * limits_.heartbeat_s;
  return std::min(alive, dead_);
}

}  // namespace partc::shell::zmtp
