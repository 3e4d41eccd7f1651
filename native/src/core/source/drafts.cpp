#include "core/source/drafts.hpp"

#include <algorithm>

namespace partc::core {
namespace {

Counts ending(const Counts& tokens, std::size_t length) {
  return {tokens.end() - static_cast<std::ptrdiff_t>(length), tokens.end()};
}

}  // namespace

Drafts::Drafts(const Counts& prompt, const Counts& expected) {
  for (const std::uint64_t token : prompt) add(token);
  for (const std::uint64_t token : expected) add(token);
  tail_ = ending(prompt, std::min(prompt.size(), DRAFT_LENGTHS.front()));
}

void Drafts::add(std::uint64_t token) {
  for (const std::size_t length : DRAFT_LENGTHS) {
    if (length <= tail_.size()) behind_[ending(tail_, length)] = text_.size();
  }
  text_.push_back(token);
  tail_.push_back(token);
  if (tail_.size() > DRAFT_LENGTHS.front()) tail_.erase(tail_.begin());
}

std::optional<Draft> Drafts::next(const Counts& guesses) const {
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
