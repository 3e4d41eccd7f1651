#include "core/device/journal.hpp"

#include <algorithm>

#include "format/facts.gen.hpp"
#include "format/text.hpp"

namespace partc::core {
namespace {

void add(Names& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

Value whole(std::uint64_t number) { return {Integer{number}}; }

Log with_reason(const char* event, const std::string& cause, const std::string& reason) {
  return {event, {{"cause", {cause}}, {"reason", {reason}}}};
}

/// Actions that are nothing to note.
template <class Kind>
concept NotNoted = OneOf<Kind, Delivered, Heard, Forward, Emitted, Seen, Failed, Begin, End, Broadcast, Tell> ||
    OneOf<Kind, Compute, Draw, Load, Release, Reset, ReadRows, WriteRows, Connect, ReadSensors, Announce, Log, Leave>;

}  // namespace

void Journal::note(const Action& action, double now, std::vector<Command>& commands) {
  std::visit(Match{[&](const Send& item) {
                     if (const auto* refuse = std::get_if<messages::Refuse>(&item.message)) {
                       commands.push_back(with_reason("refused", refuse->problem.cause, refuse->problem.message));
                     }
                   },
                   [&](const Greeted& item) { commands.push_back(greeted(item.hello.name, now)); },
                   [&](const Lost& item) { closed(item, now, commands); },
                   [&](const Linked& item) {
                     linked_.insert(item.peer);
                     commands.push_back(Log{"link-up", {{"peer", {item.peer}}}});
                   },
                   [&](const Misfit& item) {
                     commands.push_back(with_reason("misfit", item.error.cause, item.error.message));
                   },
                   [&](const Stalled& item) {
                     const std::string silent = joined(item.silent, ", ");
                     commands.push_back(Log{"stalled", {{"devices", {silent}}, {"reason", {item.error.message}}}});
                   },
                   [&](const Hold&) { stands_still(now); },
                   [&](const Broken& item) { no_way(item.devices, now, commands); },
                   [&](const Replaced& item) {
                     if (item.devices.empty()) return;
                     for (const std::string& device : item.devices) add(lost_, device);
                     commands.push_back(Log{"lost", {{"devices", {joined(item.devices, ", ")}}}});
                   },
                   [&](const Mended&) {
                     commands.push_back(healed("all devices are back", still_since_ ? now - *still_since_ : 0.0));
                   },
                   [&](const Adopt& item) { commands.push_back(adopted(item, now)); }, [](const NotNoted auto&) {}},
             action);
}

Log Journal::greeted(const std::string& device, double now) {
  const double* since = away_.find(device);
  if (since == nullptr) return {"joined", {{"peer", {device}}}};
  Log back{"back", {{"peer", {device}}, {"seconds", {now - *since}}}};
  away_.erase(device);
  return back;
}

void Journal::closed(const Lost& lost, double now, std::vector<Command>& commands) {
  if (!lost.origin.is_route) {
    // One that is not there was tried, and never stood.
    if (linked_.erase(lost.peer)) commands.push_back(Log{"link-down", {{"peer", {lost.peer}}}});
  } else if (lost.peer != CLIENT) {
    away_.set(lost.peer, now);
    commands.push_back(Log{"disconnected", {{"peer", {lost.peer}}}});
  }
}

void Journal::no_way(const Names& devices, double now, std::vector<Command>& commands) {
  stands_still(now);
  if (devices == broken_) return;
  broken_ = devices;
  commands.push_back(Log{"broken", {{"devices", {joined(devices, ", ")}}}});
}

void Journal::stands_still(double now) {
  if (!still_since_) still_since_ = now;
}

Log Journal::adopted(const Adopt& adopt, double now) {
  const std::string reason = lost_.empty() ? "the placement is changed" : "lost " + joined(lost_, ", ");
  Log found = healed(reason, adopt.stopped_s);
  if (!adopt.wish) return found;
  const std::string& asked = adopt.wish->reason;
  return {"moved",
          {{"reason", {asked.empty() ? "a client asked for it" : asked}},
           {"seconds", {now - adopt.wish->asked}},
           {"stopped_s", {adopt.stopped_s}}}};
}

Log Journal::healed(const std::string& reason, double seconds) {
  broken_.clear();
  lost_.clear();
  still_since_.reset();
  return {"healed", {{"reason", {reason}}, {"seconds", {seconds}}}};
}

Log in_force(const Role& role) {
  const placement::Placement& placement = role.placement;
  const std::vector<placement::Stage>* stages = placement.stages.find("decode");
  if (stages == nullptr || stages->empty()) stages = placement.stages.find("prefill");
  Names own;
  for (const placement::Stage& stage : *stages) {
    if (std::ranges::find(stage.devices, role.device()) == stage.devices.end()) continue;
    const auto [first, last] = stage.submodules;
    own.push_back(first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last));
  }
  return {"epoch", {{"epoch", whole(role.epoch())}, {"computes", {joined(own, " ")}}}};
}

Log dropped(const messages::Abort& abort) {
  return {"dropped",
          {{"epoch", whole(abort.epoch)}, {"cause", {abort.problem.cause}}, {"reason", {abort.problem.message}}}};
}

}  // namespace partc::core
