// Requests whose client may be away: they go on without it for a while, and their ends are kept for it.
//
// A gap shows late: a connection may carry nothing for seconds before it counts as broken. So the ends of requests whose
// client seems to be there are kept as well.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "core/actions.hpp"
#include "core/source/job.hpp"

namespace partc::core {

/// The last message of a request: `result` or `error`, and its frames.
struct Ending {
  messages::AnyMessage message;
  Frames frames;
};

class Orphans {
 public:
  explicit Orphans(double linger_s) : linger_s_(linger_s) {}

  /// The client of a request is away.
  void add(const JobPtr& job, double now);
  /// A request has ended; its client may not have heard of it.
  void ended(const JobPtr& job, Ending ending, double now);
  /// The request whose client is back, among those that go on or are kept here; and its end where it has ended.
  std::optional<std::pair<JobPtr, std::optional<Ending>>> find(const Bytes& ticket,
                                                               const std::vector<JobPtr>& going_on);
  /// Requests that waited for too long and go on; those that have ended are forgotten.
  std::vector<JobPtr> expired(double now);
  /// The reason why a request that waited for too long ends.
  Error error() const;
  /// When `expired` must be called; to forget what has ended there is no hurry.
  Due due() const;

 private:
  struct Orphan {
    JobPtr job;
    double since = 0.0;
    std::optional<Ending> ending;
  };

  /// The time that they wait for their client, seconds.
  double linger_s_;
  Map<Bytes, Orphan> by_ticket_;
};

/// All that a client has not heard of a request, from a token on.
void missed(const Job& job, const std::optional<Ending>& ending, const Origin& origin, std::uint64_t from_step,
            Actions& out);

/// The answer to the client of a request that is forgotten, or was never here.
messages::Error unknown(const Bytes& ticket);

}  // namespace partc::core
