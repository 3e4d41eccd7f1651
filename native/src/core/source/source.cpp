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

/// Placements to go over to: the compiled one, and its contingencies.
std::vector<placement::Placement> known_to(const RolePtr& role, const Start& start) {
  std::vector<placement::Placement> known{role->placement};
  known.insert(known.end(), start.contingencies.begin(), start.contingencies.end());
  return known;
}

}  // namespace

Source::Source(const RolePtr& role, const Start& start, Links& links, Membership& membership, double now)
    : schedule(role, start, now),
      changes(role, known_to(role, start), links.addresses, start.patience_s),
      monitor(links, schedule),
      links_(links),
      membership_(membership) {
  schedule.absent = membership.absent(links.missing());
}

void Source::asked(const Heard& heard, const Asked& message, double now, Actions& out) {
  std::visit(
      Match{[&](const messages::Submit* submit) { schedule.submit(heard.origin, *submit, heard.frames, now, out); },
            [&](const messages::Cancel* cancel) { schedule.cancel(heard.origin, *cancel, now, out); },
            [&](const messages::Resume* resume) { schedule.resume(heard.origin, *resume, out); },
            [&](const messages::Watch* watch) { monitor.watch(heard.origin, *watch, now, out); },
            [&](const messages::Place* wish) { place(heard, *wish, now, out); }},
      message);
}

void Source::told(const Heard& heard, const Report& report, double now, Actions& out) {
  const std::string& peer = heard.peer;
  if (changes.answered(peer, now)) look(now, out);
  std::visit(Match{[&](const messages::Ready* ready) {
                     unready_.erase(peer);
                     membership_.ready(peer, heard.origin);
                     changes.ready();
                     schedule.queue.raise_next_number(ready->next_request);
                     look(now, out);
                   },
                   [&](const messages::Unready* unready) {
                     unready_.set(peer, unready->lost);
                     membership_.left(peer, heard.origin);
                     look(now, out);
                   },
                   [&](const messages::Fail* fail) {
                     schedule.fail({fail->request, messages::error_of(fail->problem), fail->earlier}, now, out);
                   },
                   [&](const messages::Timings* timings) {
                     if (timings->device == peer) schedule.reported(*timings, heard.frames, now, out);
                   },
                   [&](const messages::Crossed* crossed) {
                     if (crossed->device == peer) schedule.crossed(*crossed, heard.frames, out);
                   },
                   [&](const messages::Pong* pong) { schedule.deadlines.patience.answered(peer, *pong, now); },
                   [&](const messages::Prepared* prepared) {
                     changes.prepared(peer, *prepared, schedule.is_at_rest(), now, out);
                     if (prepared->problem) look(now, out);
                   },
                   [&](const messages::Sensed* sensed) { monitor.sensed(peer, *sensed, now); }},
             report);
}

void Source::loaded(std::uint64_t incarnation) {
  const Role& role = *changes.role;
  changes.greeted(role.device(), {incarnation, role.epoch(), role.placement_digest()});
}

std::uint64_t Source::first_request(const messages::Hello& hello) const {
  const bool remembers = changes.members.remembers(hello.name, hello.incarnation);
  return remembers ? schedule.first_number() : schedule.queue.next_number;
}

void Source::greeted(const messages::Hello& hello, double now, Actions& out) {
  schedule.sharing.greeted(hello.name, hello.shares);
  if (!changes.members.remembers(hello.name, hello.incarnation)) {
    unready_.erase(hello.name);  // its former life lacked that link
    schedule.queue.forget_rows();
  }
  monitor.greeted(hello.name);
  changes.greeted(hello.name, {hello.incarnation, hello.epoch, hello.placement});
  look(now, out);
}

void Source::lost(const std::string& device, const Origin& origin, double now, Actions& out) {
  membership_.left(device, origin);
  if (origin.is_route) {
    changes.members.gone(device);
    monitor.gone(device, now);
  }
  schedule.deadlines.incomplete_since = now;
  look(now, out);
}

void Source::stalled(const Stalled& stalled, double now, Actions& out) {
  changes.members.suspect(stalled.silent);
  if (stalled.silent.empty()) return changes.begin_anew(stalled.error, schedule.queue.reached(), now, out);
  schedule.deadlines.incomplete_since = now;
  look(now, out);
}

void Source::broken(const Broken& broken, double now, Actions& out) {
  monitor.broken(broken.devices);
  schedule.devices_lost(broken.devices, now, out);
}

void Source::mended(double now, Actions& out) {
  monitor.mended();
  schedule.go_on(now, out);
}

void Source::look(double now, Actions& out) {
  const Names missing = links_.missing();
  schedule.absent = membership_.absent(missing);
  schedule.deadlines.links_down(cut_links(missing), now);
  if (schedule.absent.empty()) membership_.look(missing, schedule.queue.next_number, out);
  changes.review(schedule.absent, schedule.queue.reached(), now, out);
  if (!schedule.held) schedule.open_waiting(now, out);
}

void Source::replaced(const Replaced& replaced, double now, Actions& out) {
  schedule.outage_over(now);
  monitor.replaced(replaced);
  schedule.count_losses(replaced.devices, now, out);
}

void Source::adopt(const Adopt& adopt, double now, Actions& out) {
  const auto [resumptions, repeated] =
      schedule.rewind([&](std::uint64_t request, std::uint64_t reached) { return watermark(adopt, request, reached); });
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
  schedule.clients.flush_tokens(out);
  schedule.guess(now, out);
  schedule.check_deadlines(now, out);
  monitor.look(now, out);
  if (changes.is_stopping() && schedule.is_at_rest()) changes.at_rest(schedule.queue.reached(), out);
  const Due due = changes.due();
  if (!due || now < *due) return;
  changes.ask_again(schedule.queue.reached(), now, out);
  if (changes.lose_silent(now)) look(now, out);
}

/// The links that are down, of those between devices that are both connected to the source.
std::vector<LinkNames> Source::cut_links(const Names& missing) const {
  std::vector<LinkNames> found;
  auto note = [&](const std::string& sender, const std::string& receiver) {
    if (changes.members.is_connected(sender) && changes.members.is_connected(receiver))
      found.emplace_back(sender, receiver);
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
