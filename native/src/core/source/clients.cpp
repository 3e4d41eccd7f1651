#include "core/source/clients.hpp"

namespace partc::core {

void Clients::resume(const Origin& origin, const messages::Resume& resume, const std::vector<JobPtr>& going_on,
                     Actions& out) {
  const auto found = orphans.find(resume.ticket, going_on);
  if (!found) {
    out.push_back(Send{origin, unknown(resume.ticket), {}});
    return;
  }
  flush_tokens(out);
  found->first->origin = origin;
  missed(*found->first, found->second, origin, resume.from_step, out);
}

bool Clients::waits_for(const JobPtr& job, double now) {
  if (linger_s_ == 0.0) return false;
  orphans.add(job, now);
  return true;
}

void Clients::drew(const Job& job, messages::Token token) {
  if (job.origin) untold_.push_back({*job.origin, std::move(token), {}});
}

void Clients::flush_tokens(Actions& out) {
  for (Send& send : untold_) out.push_back(std::move(send));
  untold_.clear();
}

void Clients::reported(const Job& job, const messages::Timings& message, const Frames& frames, Actions& out) {
  if (!job.origin) return;
  out.push_back(
      Send{*job.origin, messages::Stats{job.ticket, message.device, message.columns, message.values}, frames});
}

void Clients::crossed(Job& job, const messages::Crossed& message, const Frames& frames, Actions& out) {
  if (!job.origin || !job.is_news(message)) return;
  const messages::Trace trace{job.ticket, message.device, message.peer, message.step, message.values};
  out.push_back(Send{*job.origin, trace, frames});
}

void Clients::end(const JobPtr& job, Ending ending, double now, Actions& out) {
  out.push_back(ended(*job, ending.message, now));
  if (job->origin) out.push_back(Send{*job->origin, ending.message, ending.frames});
  if (linger_s_ != 0.0 && (!job->origin || keeps_results_)) orphans.ended(job, std::move(ending), now);
}

}  // namespace partc::core
