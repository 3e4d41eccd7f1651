// Drafts of a request's next tokens: what stood behind the same tokens before (…/core/source/drafts.py).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/commands.hpp"

namespace partc::core {

/// Tokens of an ending that must be equal, the best first.
inline constexpr std::array<std::size_t, 6> DRAFT_LENGTHS{17, 9, 5, 3, 2, 1};

/// A token that may come next; `length`: index into `DRAFT_LENGTHS`.
struct Draft {
  std::uint64_t token = 0;
  std::size_t length = 0;
};

/// The drafts of one request.
class Drafts {
 public:
  /// Those of a request that has not begun to answer: its tokens, and those that the answer may look like.
  Drafts(Counts prompt, Counts expected) : prompt_(std::move(prompt)), expected_(std::move(expected)) {}
  /// A token of the answer is known.
  void add(std::uint64_t token);
  /// The draft of the token behind these guesses; none: there is none. Nothing is read before the first is asked for.
  std::optional<Draft> next(const Counts& guesses);

 private:
  struct Hash {
    std::size_t operator()(const Counts& tokens) const;
  };

  void read();
  void learn(std::uint64_t token);

  /// What is not read yet: the request, and tokens of the answer that came before the first draft was asked for.
  Counts prompt_, expected_, unread_;
  bool is_read_ = false;

  /// All tokens that a draft may be taken from; the last ones of prompt and answer.
  Counts text_, tail_;
  /// Some tokens → where the one stands that came behind their latest occurrence.
  std::unordered_map<Counts, std::size_t, Hash> behind_;
};

}  // namespace partc::core
