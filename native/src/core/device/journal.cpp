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

}  // namespace

void Journal::note(const Action& action, double now, std::vector<Command>& commands) {
  if (const auto* send = std::get_if<Send>(&action)) {
    if (const auto* refuse = std::get_if<messages::Refuse>(&send->message)) {
      commands.push_back(Log{"refused", {{"cause", {refuse->problem.cause}}, {"reason", {refuse->problem.message}}}});
    }
  } else if (const auto* caller = std::get_if<Greeted>(&action)) {
    commands.push_back(greeted(caller->hello.name, now));
  } else if (const auto* gone = std::get_if<Lost>(&action)) {
    closed(*gone, now, commands);
  } else if (const auto* stands = std::get_if<Linked>(&action)) {
    linked_.insert(stands->peer);
    commands.push_back(Log{"link-up", {{"peer", {stands->peer}}}});
  } else if (const auto* misfit = std::get_if<Misfit>(&action)) {
    commands.push_back(Log{"misfit", {{"cause", {misfit->error.cause}}, {"reason", {misfit->error.message}}}});
  } else if (const auto* stalled = std::get_if<Stalled>(&action)) {
    const std::string silent = joined(stalled->silent, ", ");
    commands.push_back(Log{"stalled", {{"devices", {silent}}, {"reason", {stalled->error.message}}}});
  } else if (std::holds_alternative<Hold>(action)) {
    stands_still(now);
  } else if (const auto* broken = std::get_if<Broken>(&action)) {
    no_way(broken->devices, now, commands);
  } else if (const auto* replaced = std::get_if<Replaced>(&action)) {
    if (replaced->devices.empty()) return;
    for (const std::string& device : replaced->devices) add(lost_, device);
    commands.push_back(Log{"lost", {{"devices", {joined(replaced->devices, ", ")}}}});
  } else if (std::holds_alternative<Mended>(action)) {
    commands.push_back(healed("all devices are back", still_since_ ? now - *still_since_ : 0.0));
  } else if (const auto* adopt = std::get_if<Adopt>(&action)) {
    commands.push_back(adopted(*adopt, now));
  }
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

Log ended(const Job& job, const messages::AnyMessage& ending, double now) {
  std::uint64_t tokens = 0;
  for (const Counts& row : job.tokens) tokens += row.size();
  const Value number{job.number ? Integer{*job.number} : Integer{-1}};
  const double seconds = std::max(0.0, now - job.submitted);
  if (const auto* error = std::get_if<messages::Error>(&ending)) {
    return {"request-failed",
            {{"request", number},
             {"cause", {error->problem.cause}},
             {"reason", {error->problem.message}},
             {"tokens", whole(tokens)},
             {"seconds", {seconds}}}};
  }
  Names reasons;
  for (const std::string& reason : job.finish) add(reasons, reason);
  return {"request-ended",
          {{"request", number},
           {"finish", {joined(reasons, ", ")}},
           {"tokens", whole(tokens)},
           {"seconds", {seconds}},
           {"repeated", whole(job.replayed)}}};
}

}  // namespace partc::core
