// The steps of one request that are under way on a device, in their order (…/core/device/under_way.py).
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "core/device/execution.hpp"

namespace partc::core {

/// Whether steps of a phase take one token.
bool takes_token(const std::string& phase);

/// Executions of the steps of a request, the earliest first; none overtakes an earlier one.
class UnderWay {
 public:
  bool empty() const { return executions_.empty(); }
  /// Steps of the request that are over with them.
  std::uint64_t tokens() const;
  /// The earliest; null: there is none.
  Execution* first() { return executions_.empty() ? nullptr : &executions_.front(); }
  const Execution* first() const { return executions_.empty() ? nullptr : &executions_.front(); }
  /// That of a step; null: it is not under way.
  Execution* of(std::uint64_t step);
  /// Whether a step may begin now: all before it are over, or it takes a token behind others of its request alone.
  bool takes(const Step& step) const;
  /// The next step begins.
  template <typename... Parts>
  Execution& add(Parts&&... parts) {
    return executions_.emplace_back(std::forward<Parts>(parts)...);
  }
  /// The earliest that can go on; null: none can.
  const Execution* able() const;
  Execution* able() { return const_cast<Execution*>(static_cast<const UnderWay*>(this)->able()); }
  /// The earliest is over.
  Execution end_first();
  /// Whether an execution is one of them.
  bool has(const Execution* execution) const;
  /// How many of them have run a sub-module, or run it; `computing`: for which the engine works.
  std::uint64_t begun(const std::string& submodule, const Execution* computing) const;
  /// Nothing will follow from any of them, from a step on; one that has taken it behind its own goes on.
  void drop(std::uint64_t first = 0);

 private:
  std::deque<Execution> executions_;
};

}  // namespace partc::core
