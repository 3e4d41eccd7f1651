#include "core/source/orphans.hpp"

#include "core/links/outages.hpp"
#include "format/complaints.hpp"
#include "format/message_parts.hpp"

namespace partc::core {
namespace {

/// Ends that are kept at once, the last ones.
constexpr std::size_t MOST_ENDED = 64;
constexpr const char* HINT = "send it again; with a higher --linger the source waits longer for its clients";

}  // namespace

void Orphans::add(const JobPtr& job, double now) {
  job->origin.reset();
  by_ticket_.set(job->ticket, {job, now, {}});
}

void Orphans::ended(const JobPtr& job, Ending ending, double now) {
  if (!by_ticket_.contains(job->ticket)) by_ticket_.set(job->ticket, {job, now, {}});
  by_ticket_.at(job->ticket).ending = std::move(ending);
  std::vector<Bytes> ended;
  for (const auto& [ticket, orphan] : by_ticket_) {
    if (orphan.ending) ended.push_back(ticket);
  }
  for (std::size_t at = 0; at + MOST_ENDED < ended.size(); ++at) by_ticket_.erase(ended[at]);
}

std::optional<std::pair<JobPtr, std::optional<Ending>>> Orphans::find(const Bytes& ticket,
                                                                      const std::vector<JobPtr>& going_on) {
  if (const Orphan* orphan = by_ticket_.find(ticket); orphan != nullptr && orphan->ending) {
    return std::pair{orphan->job, orphan->ending};
  }
  by_ticket_.erase(ticket);
  for (const JobPtr& job : going_on) {
    if (job->ticket == ticket) return std::pair{job, std::optional<Ending>()};
  }
  return {};
}

std::vector<JobPtr> Orphans::expired(double now) {
  std::vector<JobPtr> found;
  by_ticket_.erase_if([&](const auto& entry) {
    const Orphan& orphan = entry.second;
    const bool is_over = now >= orphan.since + linger_s_;
    if (is_over && !orphan.ending) found.push_back(orphan.job);
    return is_over;
  });
  return found;
}

Error Orphans::error() const {
  return run_error("the client of this request was away for " + short_number(linger_s_) + " s", "", HINT, "lost-peer");
}

Due Orphans::due() const {
  Due first;
  for (const auto& [ticket, orphan] : by_ticket_) {
    if (!orphan.ending) first = soonest({first, orphan.since + linger_s_});
  }
  return first;
}

void missed(const Job& job, const std::optional<Ending>& ending, const Origin& origin, std::uint64_t from_step,
            Actions& out) {
  for (std::uint64_t step = from_step; step < job.step(); ++step) {
    const auto [tokens, finish] = job.told(step);
    const Likelies* likely = job.likely.find(step);
    out.push_back(Send{origin, messages::Token{job.ticket, step, tokens, finish, likely ? *likely : Likelies{}}, {}});
  }
  if (ending) out.push_back(Send{origin, ending->message, ending->frames});
}

messages::Error unknown(const Bytes& ticket) {
  return {ticket, messages::problem_of(refused("this request is not known here", "", HINT))};
}

}  // namespace partc::core
