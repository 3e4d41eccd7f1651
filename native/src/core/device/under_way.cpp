#include "core/device/under_way.hpp"

#include <algorithm>

#include "format/facts.gen.hpp"

namespace partc::core {

bool takes_token(const std::string& phase) { return phase == "decode" || phase == program::REPLAY; }

std::uint64_t UnderWay::tokens() const {
  std::uint64_t count = 0;
  for (const Execution& each : executions_) count += each.tokens;
  return count;
}

Execution* UnderWay::of(std::uint64_t step) {
  const auto found = std::ranges::find_if(executions_, [&](const Execution& each) { return each.step.step == step; });
  return found == executions_.end() ? nullptr : &*found;
}

bool UnderWay::takes(const Step& step) const {
  if (executions_.empty()) return true;
  const Step& last = executions_.back().step;
  return step.phase == "decode" && last.phase == "decode" && step.others.empty() && last.others.empty();
}

const Execution* UnderWay::able() const {
  const auto found = std::ranges::find_if(executions_, [](const Execution& each) { return each.can_go_on(); });
  return found == executions_.end() ? nullptr : &*found;
}

Execution UnderWay::end_first() {
  Execution over = std::move(executions_.front());
  executions_.pop_front();
  return over;
}

std::uint64_t UnderWay::begun(const std::string& submodule, const Execution* computing) const {
  const auto count = std::ranges::count_if(executions_, [&](const Execution& each) {
    return each.has_begun(submodule, &each == computing);
  });
  return static_cast<std::uint64_t>(count);
}

bool UnderWay::has(const Execution* execution) const {
  return std::ranges::any_of(executions_, [&](const Execution& each) { return &each == execution; });
}

void UnderWay::drop(std::uint64_t first) {
  while (!executions_.empty() && executions_.back().step.step >= first) {
    executions_.back().drop();
    executions_.pop_back();
  }
  if (executions_.empty()) return;
  Execution& last = executions_.back();
  last.tokens = std::min(last.tokens, first - last.step.step);
}

}  // namespace partc::core
