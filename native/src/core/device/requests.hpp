// All requests of one device, and which of them goes on next (partc/runtime/core/device/requests.py).
#pragma once

#include <deque>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/device/request.hpp"

namespace partc::core {

class Requests {
 public:
  explicit Requests(ScriptPtr of_script) : script(std::move(of_script)) {}

  ScriptPtr script;
  /// Every request that this device was ever told of has a lower number.
  std::uint64_t next_request = 0;
  /// Requests below this number are over.
  std::uint64_t first_request = 0;
  /// Whether requests may begin: only the source's welcome tells which repeated messages belong to a former life.
  bool opens = false;

  bool any_open() const { return !open_.empty(); }
  /// The request that the engine works for; none: it rests.
  std::optional<std::uint64_t> computing() const;
  /// Another placement is in force: these requests go on in it; all others are over.
  void resume(ScriptPtr of_script, const std::vector<messages::Resumption>& resumptions, double now);
  std::vector<std::uint64_t> numbers() const;
  /// The request that is open in a slot.
  std::optional<std::uint64_t> in_slot(std::uint64_t slot) const;
  /// A request that is open here; null: it is not.
  const Request* request(std::uint64_t number) const;
  /// These requests compute nothing more, and all others go on: what is said of states stays true meanwhile.
  void halt(std::set<std::uint64_t> numbers);
  /// Steps of an open request that the states of a sub-module have seen: one that is not over counts where it rewrites
  /// them; rows that it writes are written again later.
  std::uint64_t steps_in(const Request& request, const std::string& submodule) const;
  /// The watermarks of sub-modules that this device runs.
  std::vector<messages::Held> held(const Names& submodules) const;
  /// (sub-module or `sample`, phase) of what the engine computes; empty texts: it rests.
  std::pair<std::string, std::string> works_at() const;
  std::uint64_t in_flight() const { return open_.size(); }
  /// Requests that could go on, and wait for the engine.
  std::uint64_t queue() const;

  /// Start a step whose inputs are here (on the source), once the request's last one is over here.
  void begin(const Step& step, const Tensors& inputs, double now, Actions& out);
  /// Take a message; messages of a request that is over are ignored.
  void deliver(const std::string& peer, const Step& step, const Tensors& values, double now, Actions& out);
  /// Let the oldest step that can go on do so, until the device computes or every step waits.
  void advance(double now, Actions& out);
  /// Take the result of a computation; its step goes on at once.
  void computed(const std::vector<Tensor>& values, double seconds, double now, Actions& out);
  /// End the request whose computation failed.
  void failed(const Error& error, Actions& out);
  /// End a request, wherever it is; its steps so far. Unknown requests are ignored.
  std::vector<Timing> close(std::uint64_t number);
  /// End every request that a failure concerns.
  void close_failed(const Failed& failed);
  /// End every request of a lower number, those included that this device will be told of later.
  void close_below(std::uint64_t number);
  /// The messages that the steps under way wait for.
  std::string doing() const;

 private:
  using Ready = std::pair<double, std::uint64_t>;

  RequestPtr find(std::uint64_t number) const;
  void advance(const RequestPtr& request, double now, Actions& out);
  void noted(const Request& request, RequestState before);
  RequestPtr admit(const Step& step, double now);
  bool gather(Request& request, const Step& step) const;
  void drop_shared(std::uint64_t number);
  void overtake(std::uint64_t slot);
  std::vector<Timing> steps_of_overtaken(std::uint64_t number);
  bool is_over(const Step& step) const;
  bool is_closed(std::uint64_t number) const;

  Map<std::uint64_t, RequestPtr> open_;
  /// Slot → the last request that had it.
  Map<std::uint64_t, std::uint64_t> slots_;
  /// Slot → the request before that, where its end has not been told of: it travels on another connection.
  Map<std::uint64_t, RequestPtr> overtaken_;
  std::deque<std::uint64_t> closed_;
  /// (when its step began, number) of requests that can go on, the oldest first.
  std::priority_queue<Ready, std::vector<Ready>, std::greater<Ready>> ready_;
  /// Requests that compute nothing for now.
  std::set<std::uint64_t> halted_;
  RequestPtr computing_;
  /// (sub-module or `sample`, phase) of the last computation.
  std::pair<std::string, std::string> works_at_;
};

}  // namespace partc::core
