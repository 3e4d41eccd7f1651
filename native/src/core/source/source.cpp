#include "core/source/source.hpp"

#include <algorithm>

#include "format/message_parts.hpp"

namespace partc::core {
namespace {

/// The step from which the owners of all sub-modules can go on, none behind `reached`; O(sub-modules).
std::uint64_t watermark(const Adopt& adopt, std::uint64_t request, std::uint64_t reached) {
  std::uint64_t least = reached, exact = 0;
  for (const auto& [device, names] : adopt.role->all_running) {
    for (const std::string& name : names) {
      const messages::Held* held = adopt.have.find({device, request, name});
      const std::uint64_t found = held == nullptr ? 0 : held->steps;
      least = std::min(least, found);
      if (held != nullptr && held->exact) exact = std::max(exact, found);
    }
  }
  return exact > least ? 0 : least;
}

}  // namespace

Source::Source(Schedule of_schedule, Changes of_changes, Links& links, Membership& membership)
    : schedule(std::move(of_schedule)),
      changes(std::move(of_changes)),
      monitor(links, schedule),
      links_(links),
      membership_(membership) {}

void Source::asked(const Heard& heard, double now, Actions& out) {
  const messages::AnyMessage& message = heard.message;
  if (const auto* submit = std::get_if<messages::Submit>(&message)) {
    schedule.submit(heard.origin, *submit, heard.frames, now, out);
  } else if (const auto* cancel = std::get_if<messages::Cancel>(&message)) {
    schedule.cancel(heard.origin, *cancel, now, out);
  } else if (const auto* resume = std::get_if<messages::Resume>(&message)) {
    schedule.resume(heard.origin, *resume, out);
  } else if (const auto* watch = std::get_if<messages::Watch>(&message)) {
    monitor.watch(heard.origin, *watch, now, out);
  } else if (const auto* wish = std::get_if<messages::Place>(&message)) {
    place(heard, *wish, now, out);
  }
}

void Source::told(const Heard& heard, double now, Actions& out) {
  const std::string& peer = heard.peer;
  if (changes.answered(peer, now)) look(now, out);
  const messages::AnyMessage& message = heard.message;
  if (const auto* ready = std::get_if<messages::Ready>(&message)) {
    unready_.erase(peer);
    membership_.ready(peer, heard.origin);
    changes.ready();
    schedule.seen(ready->next_request);
    look(now, out);
  } else if (const auto* unready = std::get_if<messages::Unready>(&message)) {
    unready_.set(peer, unready->lost);
    membership_.left(peer, heard.origin);
    look(now, out);
  } else if (const auto* fail = std::get_if<messages::Fail>(&message)) {
    schedule.fail({fail->request, messages::error_of(fail->problem), fail->earlier}, now, out);
  } else if (const auto* timings = std::get_if<messages::Timings>(&message)) {
    if (timings->device == peer) schedule.reported(*timings, heard.frames, now, out);
  } else if (const auto* crossed = std::get_if<messages::Crossed>(&message)) {
    if (crossed->device == peer) schedule.crossed(*crossed, heard.frames, out);
  } else if (const auto* pong = std::get_if<messages::Pong>(&message)) {
    schedule.patience.answered(peer, *pong, now);
  } else if (const auto* sensed = std::get_if<messages::Sensed>(&message)) {
    monitor.sensed(peer, *sensed, now);
  } else if (const auto* prepared = std::get_if<messages::Prepared>(&message)) {
    changes.prepared(peer, *prepared, schedule.is_at_rest(), now, out);
    if (prepared->problem) look(now, out);
  }
}

void Source::loaded(std::uint64_t incarnation) {
  const Role& role = *changes.role;
  changes.greeted(role.device(), {incarnation, role.epoch(), role.placement_digest()});
}

std::uint64_t Source::first_request(const messages::Hello& hello) const {
  return changes.remembers(hello.name, hello.incarnation) ? schedule.first_number() : schedule.next_number;
}

void Source::greeted(const messages::Hello& hello, double now, Actions& out) {
  schedule.sharing.greeted(hello.name, hello.shares);
  if (!changes.remembers(hello.name, hello.incarnation)) {
    unready_.erase(hello.name);  // its former life lacked that link
    schedule.forget_rows();
  }
  monitor.greeted(hello.name);
  changes.greeted(hello.name, {hello.incarnation, hello.epoch, hello.placement});
  look(now, out);
}

void Source::lost(const std::string& device, const Origin& origin, double now, Actions& out) {
  membership_.left(device, origin);
  if (origin.is_route) {
    changes.gone(device);
    monitor.gone(device, now);
  }
  schedule.incomplete_since = now;
  look(now, out);
}

void Source::stalled(const Stalled& stalled, double now, Actions& out) {
  changes.stalled(stalled.silent);
  if (stalled.silent.empty()) return changes.begin_anew(stalled.error, schedule.reached(), now, out);
  schedule.incomplete_since = now;
  look(now, out);
}

void Source::look(double now, Actions& out) {
  const Names missing = links_.missing();
  schedule.absent = membership_.absent(missing);
  schedule.cut(cut_links(missing), now);
  if (schedule.absent.empty()) membership_.look(missing, schedule.next_number, out);
  changes.review(schedule.absent, schedule.reached(), now, out);
  if (!schedule.held) schedule.pump(now, out);
}

void Source::replaced(const Replaced& replaced, double now, Actions& out) {
  schedule.whole(now);
  monitor.replaced(replaced);
  schedule.count_losses(replaced.devices, now, out);
}

void Source::adopt(const Adopt& adopt, double now, Actions& out) {
  const auto [resumptions, repeated] = schedule.rewind(
      [&](std::uint64_t request, std::uint64_t reached) { return watermark(adopt, request, reached); });
  membership_.adopt(adopt.role, links_.devices());
  schedule.adopt(adopt.role);
  monitor.adopt(adopt, now);
  for (const auto& [device, incarnation] : adopt.participants) {
    const messages::Commit message{adopt.role->placement_digest(), adopt.role->epoch(), incarnation, resumptions};
    out.push_back(Tell{device, message, {}});
  }
  schedule.absent.clear();
  schedule.go_on(now, out);
  placed(adopt, repeated, now, out);
}

void Source::catch_up(double now, Actions& out) {
  schedule.tell(out);
  schedule.look(now, out);
  monitor.look(now, out);
  if (changes.is_stopping() && schedule.is_at_rest()) changes.at_rest(schedule.reached(), out);
  const Due due = changes.due();
  if (!due || now < *due) return;
  changes.ask_again(schedule.reached(), now, out);
  if (changes.lose_silent(now)) look(now, out);
}

/// The links that are down, of those between devices that are both connected to the source.
std::vector<LinkNames> Source::cut_links(const Names& missing) const {
  std::vector<LinkNames> found;
  auto note = [&](const std::string& sender, const std::string& receiver) {
    if (changes.members.contains(sender) && changes.members.contains(receiver)) found.emplace_back(sender, receiver);
  };
  for (const std::string& name : missing) note(membership_.role->device(), name);
  for (const auto& [sender, receiver] : unready_) note(sender, receiver);
  return found;
}

void Source::place(const Heard& heard, const messages::Place& message, double now, Actions& out) {
  placement::Placement placement;
  try {
    placement = placement::parse_placement(join_frames(heard.frames).text(), "place");
  } catch (const Error& error) {
    out.push_back(Send{heard.origin, messages::Error{message.ticket, messages::problem_of(error)}, {}});
    return;
  }
  changes.place(heard.origin, message, placement, now, out);
  look(now, out);
}

}  // namespace partc::core
