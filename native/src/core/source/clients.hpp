// Clients of a ring: what they are told, and what is kept for those that may be away (…/core/source/clients.py).
#pragma once

#include <vector>

#include "core/source/answers.hpp"
#include "core/source/orphans.hpp"

namespace partc::core {

/// The clients of all requests.
class Clients {
 public:
  /// `linger_s`: the time that a request waits for its client to come back, seconds. `keeps_results`: whether results are
  /// small enough to be kept for clients that are away.
  Clients(double linger_s, bool keeps_results)
      : orphans(linger_s), linger_s_(linger_s), keeps_results_(keeps_results) {}

  Orphans orphans;

  /// Whether a request goes on, or its end is kept.
  bool knows(const Bytes& ticket, const std::vector<JobPtr>& going_on) {
    return orphans.find(ticket, going_on).has_value();
  }
  /// A client is back: it gets what it missed.
  void resume(const Origin& origin, const messages::Resume& resume, const std::vector<JobPtr>& going_on, Actions& out);
  /// The client of a request is away; whether the request goes on without it for a while.
  bool waits_for(const JobPtr& job, double now);
  /// A request has a new token.
  void drew(const Job& job, messages::Token token);
  /// Tell clients of new tokens, when the next step is on its way to the other devices.
  void flush_tokens(Actions& out);
  /// A device has reported the times of a request.
  void reported(const Job& job, const messages::Timings& message, const Frames& frames, Actions& out);
  /// A device has received tensors of a traced request.
  void crossed(Job& job, const messages::Crossed& message, const Frames& frames, Actions& out);
  /// Tell the client how its request ended, and keep that in case the client is away.
  void end(const JobPtr& job, Ending ending, double now, Actions& out);

 private:
  double linger_s_;
  bool keeps_results_;
  /// Tokens that clients are to be told of.
  std::vector<Send> untold_;
};

}  // namespace partc::core
