#include "core/device/requests.hpp"

#include <algorithm>

#include "format/complaints.hpp"
#include "format/text.hpp"

namespace partc::core {
namespace {

constexpr std::size_t KEPT_NUMBERS = 256;

}  // namespace

std::optional<std::uint64_t> Requests::computing() const {
  return computing_ ? std::optional(computing_->number) : std::nullopt;
}

void Requests::resume(ScriptPtr of_script, const std::vector<messages::Resumption>& resumptions, double now) {
  script = std::move(of_script);
  // The computation under way goes on, but nothing follows from it.
  Map<std::uint64_t, messages::Resumption> kept;
  for (const messages::Resumption& each : resumptions) kept.set(each.request, each);
  Map<std::uint64_t, RequestPtr> before;
  for (const auto& [number, each] : kept) {
    if (const RequestPtr request = find(number)) before.set(number, request);
  }
  for (const std::uint64_t number : numbers()) close(number);
  ready_ = {};
  halted_.clear();
  for (const auto& [number, each] : kept) {
    const RequestPtr* known = before.find(number);
    open_.set(number, std::make_shared<Request>(script, each, known ? known->get() : nullptr, now));
    slots_.set(each.slot, number);
    next_request = std::max(next_request, number + 1);
    if (is_closed(number)) closed_.erase(std::ranges::find(closed_, number));
  }
}

std::vector<std::uint64_t> Requests::numbers() const {
  std::vector<std::uint64_t> found;
  for (const auto& [number, request] : open_) found.push_back(number);
  return found;
}

std::optional<std::uint64_t> Requests::in_slot(std::uint64_t slot) const {
  const std::uint64_t* number = slots_.find(slot);
  return number != nullptr && open_.contains(*number) ? std::optional(*number) : std::nullopt;
}

const Request* Requests::request(std::uint64_t number) const { return find(number).get(); }

void Requests::halt(std::set<std::uint64_t> numbers) {
  halted_ = std::move(numbers);
  ready_ = {};
  for (const auto& [number, request] : open_) noted(*request, RequestState::idle);
}

std::uint64_t Requests::steps_in(const Request& request, const std::string& submodule) const {
  if (!script->role->rewrites(submodule)) return request.steps;
  std::uint64_t seen = request.steps;
  for (const auto& [number, leader] : open_) {
    if (number == request.number || leader->shares_with(request.number)) seen += leader->begun(submodule);
  }
  return seen;
}

std::vector<messages::Held> Requests::held(const Names& submodules) const {
  const Role& role = *script->role;
  std::vector<messages::Held> found;
  for (const auto& [number, request] : open_) {
    if (request->steps == 0) continue;
    for (const std::string& name : submodules) {
      found.push_back({number, name, steps_in(*request, name), role.keeps || role.rewrites(name)});
    }
  }
  return found;
}

std::pair<std::string, std::string> Requests::works_at() const {
  return computing_ ? works_at_ : std::pair<std::string, std::string>{};
}

std::uint64_t Requests::queue() const {
  std::uint64_t count = 0;
  for (const auto& [number, request] : open_) count += request->state == RequestState::ready;
  return count;
}

void Requests::begin(const Step& step, const Tensors& inputs, double now, Actions& out) {
  try {
    RequestPtr request = find(step.request);
    if (!request) request = admit(step, now);
    gather(*request, step);
    const RequestState before = request->state;
    request->begin(step, inputs, now);
    noted(*request, before);
  } catch (const Error& error) {
    if (error.kind != ErrorKind::run) throw;
    out.push_back(Failed{step.request, error});
  }
}

void Requests::deliver(const std::string& peer, const Step& step, const Tensors& values, double now, Actions& out) {
  Actions found;
  try {
    RequestPtr request = find(step.request);
    if (!request) {
      // At the source no message is the first: one that tells of an unknown request was for its former life.
      if (!opens || !step.opening || is_over(step)) return;
      request = admit(step, now);
    }
    if (!gather(*request, step)) return;
    const RequestState before = request->state;
    request->deliver(peer, step, values, now, found);
    if (computing_ && !halted_.contains(request->number)) request->move(step.step, now, found);
    noted(*request, before);
    out.insert(out.end(), found.begin(), found.end());
  } catch (const Error& caught) {
    if (caught.kind != ErrorKind::run) throw;
    Error error = caught;
    if (error.where.empty()) error.where = peer + " -> " + script->role->device();
    out.push_back(Failed{step.request, error});
  }
}

void Requests::advance(double now, Actions& out) {
  while (!ready_.empty() && !computing_) {
    const std::uint64_t number = ready_.top().second;
    ready_.pop();
    const RequestPtr request = find(number);
    if (request && request->state == RequestState::ready && !halted_.contains(number)) advance(request, now, out);
  }
}

void Requests::computed(const std::vector<Tensor>& values, double seconds, double now, Actions& out) {
  const RequestPtr request = std::exchange(computing_, nullptr);
  if (!request || request->state != RequestState::computing) return;
  request->computed(values, seconds, now);
  if (!halted_.contains(request->number)) advance(request, now, out);
}

void Requests::failed(const Error& error, Actions& out) {
  const RequestPtr request = std::exchange(computing_, nullptr);
  if (!request || request->state != RequestState::computing) return;
  out.push_back(Failed{request->number, error});
}

std::vector<Timing> Requests::close(std::uint64_t number) {
  next_request = std::max(next_request, number + 1);
  closed_.push_back(number);
  if (closed_.size() > KEPT_NUMBERS) closed_.pop_front();
  const RequestPtr request = find(number);
  open_.erase(number);
  drop_shared(number);
  if (!request) return steps_of_overtaken(number);
  request->close();
  return whole_steps(request->timings);
}

void Requests::close_failed(const Failed& failed) {
  for (const std::uint64_t number : numbers()) {
    if (failed.concerns(number)) close(number);
  }
}

void Requests::close_below(std::uint64_t number) {
  first_request = std::max(first_request, number);
  next_request = std::max(next_request, number);
  for (const std::uint64_t each : numbers()) {
    if (each < number) close(each);
  }
}

std::string Requests::doing() const {
  if (computing_) return "computes for request " + std::to_string(computing_->number);
  std::vector<std::uint64_t> sorted = numbers();
  std::ranges::sort(sorted);
  Names waits;
  for (const std::uint64_t number : sorted) {
    const auto found = find(number)->waits_for();
    if (!found) continue;
    waits.push_back("waits for " + joined(found->second.values, ", ") + " from " + found->second.device + " (step " +
                    std::to_string(found->first) + ")");
  }
  return waits.empty() ? "idle" : joined(waits, "; ");
}

RequestPtr Requests::find(std::uint64_t number) const {
  const RequestPtr* found = open_.find(number);
  return found == nullptr ? nullptr : *found;
}

void Requests::advance(const RequestPtr& request, double now, Actions& out) {
  Actions found;
  try {
    request->advance(now, found);
  } catch (const Error& error) {
    if (error.kind != ErrorKind::run) throw;
    out.push_back(Failed{request->number, error});
    return;
  }
  out.insert(out.end(), found.begin(), found.end());
  if (request->state == RequestState::computing) {
    computing_ = request;
    works_at_ = request->works_at();
  } else {
    noted(*request, RequestState::idle);
  }
}

/// Remember a request that has got ready.
void Requests::noted(const Request& request, RequestState before) {
  if (request.state == RequestState::ready && before != RequestState::ready) {
    ready_.emplace(request.began_s(), request.number);
  }
}

/// Open the request of a step 0. Throws Error: the step opens no request.
RequestPtr Requests::admit(const Step& step, double now) {
  if (!step.opening) {
    throw refused("step " + std::to_string(step.step) + " of request " + std::to_string(step.request) +
                  " does not open it");
  }
  const messages::Opening& opening = *step.opening;
  const std::uint64_t* last = slots_.find(step.slot);
  if (opening.reuse && (last == nullptr || *last != opening.reuse->request)) {
    throw refused("the rows of request " + std::to_string(opening.reuse->request) + " are not in slot " +
                  std::to_string(step.slot));
  }
  overtake(step.slot);
  auto request = std::make_shared<Request>(script, step.request, step.slot, opening.sampling, opening.trace, now);
  request->begin_behind(opening.reuse);
  open_.set(step.request, request);
  slots_.set(step.slot, step.request);
  next_request = std::max(next_request, step.request + 1);
  return request;
}

/// Bring the requests of a shared step together before it begins; whether all of them are open.
/// Throws Error: one of them is not at that step.
bool Requests::gather(Request& request, const Step& step) const {
  std::vector<RequestPtr> mates;
  for (const StepMember& member : step.others) {
    const RequestPtr mate = find(member.request);
    if (!mate) return false;
    mates.push_back(mate);
  }
  if (!mates.empty() && !request.shares()) request.share(step, std::move(mates));
  return true;
}

/// End a request whose step under way an ended one shares: the source ends one of them with all others only.
///
/// Its rows would be written into the slot of a later request.
void Requests::drop_shared(std::uint64_t number) {
  std::vector<RequestPtr> leaders;
  for (const auto& [each, request] : open_) {
    if (request->shares_with(number)) leaders.push_back(request);
  }
  for (const RequestPtr& leader : leaders) {
    open_.erase(leader->number);
    leader->close();
  }
}

/// End the request that has a slot; its timings are kept until its end is told of.
void Requests::overtake(std::uint64_t slot) {
  const std::optional<std::uint64_t> former = in_slot(slot);
  if (!former) return;
  const RequestPtr request = find(*former);
  open_.erase(*former);
  drop_shared(*former);
  request->close();
  overtaken_.set(slot, request);
}

std::vector<Timing> Requests::steps_of_overtaken(std::uint64_t number) {
  for (const auto& [slot, request] : overtaken_) {
    if (request->number != number) continue;
    std::vector<Timing> steps = whole_steps(request->timings);
    overtaken_.erase(std::uint64_t{slot});
    return steps;
  }
  return {};
}

/// Whether a message is late: on another link, the end of its request may have overtaken it.
bool Requests::is_over(const Step& step) const {
  const std::uint64_t* last = slots_.find(step.slot);
  const std::uint64_t first = std::max(first_request, last == nullptr ? 0 : *last);
  return step.request < first || is_closed(step.request);
}

bool Requests::is_closed(std::uint64_t number) const { return std::ranges::find(closed_, number) != closed_.end(); }

}  // namespace partc::core
