#include "core/source/drafts.hpp"

#include <algorithm>

namespace partc::core {
namespace {

/// Tokens of a prompt, and of what an answer may look like, that are read.
constexpr std::size_t MOST = 8192;

Counts ending(const Counts& tokens, std::size_t length) {
  return {tokens.end() - static_cast<std::ptrdiff_t>(length), tokens.end()};
}

}  // namespace

void Drafts::add(std::uint64_t token) {
  if (is_read_) {
    learn(token);
  } else {
    unread_.push_back(token);
  }
}

void Drafts::read() {
  const Counts prompt = ending(prompt_, std::min(prompt_.size(), MOST));
  for (const std::uint64_t token : prompt) learn(token);
  for (std::size_t at = 0; at < std::min(expected_.size(), MOST); ++at) learn(expected_[at]);
  tail_ = ending(prompt, std::min(prompt.size(), DRAFT_LENGTHS.front()));
  for (const std::uint64_t token : unread_) learn(token);
  is_read_ = true;
  prompt_ = expected_ = unread_ = {};
}

void Drafts::learn(std::uint64_t token) {
  for (const std::size_t length : DRAFT_LENGTHS) {
    if (length <= tail_.size()) behind_[ending(tail_, length)] = text_.size();
  }
  text_.push_back(token);
  tail_.push_back(token);
  if (tail_.size() > DRAFT_LENGTHS.front()) tail_.erase(tail_.begin());
}

std::optional<Draft> Drafts::next(const Counts& guesses) {
  if (!is_read_) read();
  Counts tail = tail_;
  tail.insert(tail.end(), guesses.begin(), guesses.end());
  for (std::size_t index = 0; index < DRAFT_LENGTHS.size(); ++index) {
    if (DRAFT_LENGTHS[index] > tail.size()) continue;
    const auto found = behind_.find(ending(tail, DRAFT_LENGTHS[index]));
    if (found != behind_.end()) return Draft{text_[found->second], index};
  }
  return {};
}

std::size_t Drafts::Hash::operator()(const Counts& tokens) const {
  std::uint64_t hash = tokens.size();
  for (const std::uint64_t token : tokens) hash = (hash ^ token) * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::size_t>(hash ^ (hash >> 32));
}

}  // namespace partc::core
