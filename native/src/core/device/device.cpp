#include "core/device/device.hpp"

#include <algorithm>
#include <utility>

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/message_parts.hpp"

namespace partc::core {
namespace {

/// Kinds of actions that are commands: the shell carries them out.
template <class Kind, class Variant>
struct IsIn;
template <class Kind, class... Kinds>
struct IsIn<Kind, std::variant<Kinds...>> : std::bool_constant<OneOf<Kind, Kinds...>> {};
template <class Kind>
concept IsCommand = IsIn<std::remove_cvref_t<Kind>, Command>::value;

Frames frames_of(const Tensors& values) {
  Frames frames;
  for (const auto& [name, tensor] : values) {
    for (Frame& part : split_frames(tensor.bytes)) frames.push_back(std::move(part));
  }
  return frames;
}

}  // namespace

Device::Device(RolePtr role, const Start& start, double now) : parts_(std::move(role), start, now), inbox_(parts_) {}

Due Device::deadline() const {
  return soonest({parts_.links.incoming.due(), parts_.transfer.fetches.due(), parts_.preparation.due(),
                  parts_.source ? parts_.source->due() : Due()});
}

std::vector<Command> Device::on(const Event& event, double now) {
  std::vector<Command> commands = react(event, now);
  for (Command& command : catch_up(now)) commands.push_back(std::move(command));
  return commands;
}

std::vector<Command> Device::react(const Event& event, double now) {
  std::vector<Command> commands;
  Actions actions;
  take(event, now, actions);
  carry_out(std::move(actions), now, commands);
  advance(now, commands);
  return commands;
}

std::vector<Command> Device::catch_up(double now) {
  std::vector<Command> commands;
  Actions actions;
  take_rest(now, actions);
  carry_out(std::move(actions), now, commands);
  advance(now, commands);
  return commands;
}

/// Let steps go on; where one ends at the source, the next one of its request begins and goes on as well.
void Device::advance(double now, std::vector<Command>& commands) {
  while (true) {
    Actions actions;
    parts_.requests.advance(now, actions);
    if (actions.empty()) return;
    carry_out(std::move(actions), now, commands);
  }
}

// -- how actions reach the part that they are for

/// Take each action to its part; what follows from it comes before the next one.
void Device::carry_out(Actions actions, double now, std::vector<Command>& commands) {
  for (Action& action : actions) {
    parts_.journal.note(action, now, commands);
    Actions following;
    act(action, now, following, commands);
    carry_out(std::move(following), now, commands);
  }
}

/// The cases are all kinds of actions: one more does not compile before it is taken somewhere.
void Device::act(Action& action, double now, Actions& out, std::vector<Command>& commands) {
  std::visit(Match{[&](const Delivered& item) {
                     if (parts_.source) parts_.source->schedule.moved(item.step.request, now);
                     parts_.requests.deliver(item.peer, item.step, item.values, now, out);
                   },
                   [&](const Forward& item) { forward(item, out); },
                   [&](const Emitted& item) { own_source().schedule.emitted(item.step, item.values, now, out); },
                   [&](const Begin& item) { parts_.requests.begin(item.step, item.inputs, now, out); },
                   [&](const End& item) { end(item, now, out); },
                   [&](const Seen& item) { seen(item, out); },
                   [&](const Failed& item) { failed(item, now, out); },
                   [&](const Heard& item) { inbox_.take(item, now, out); },
                   [&](const Linked& item) { linked(item, now, out); },
                   [&](const Greeted& item) {
                     if (parts_.source) parts_.source->greeted(item.hello, now, out);
                   },
                   [&](const Lost& item) { lost(item, now, out); },
                   [&](const Misfit& item) {
                     if (parts_.membership.was_complete()) return failed({{}, item.error}, now, out);
                     out.push_back(Leave{item.error});
                   },
                   [&](const Broadcast& item) {
                     for (const auto& [name, origin] : parts_.links.devices()) {
                       out.push_back(Send{origin, item.message, {}});
                     }
                   },
                   [&](const Tell& item) { inbox_.tell(item, now, out); },
                   [&](const Stalled& item) { own_source().stalled(item, now, out); },
                   [&](const Hold& item) { own_source().schedule.hold(item.at_once); },
                   [&](const Broken& item) { own_source().broken(item, now, out); },
                   [&](const Mended&) { own_source().mended(now, out); },
                   [&](const Replaced& item) { own_source().replaced(item, now, out); },
                   [&](const Adopt& item) { own_source().adopt(item, now, out); },
                   [&](Compute& item) {
                     if (item.resets) parts_.transfer.fetches.reset(item.slot);
                     commands.emplace_back(std::move(item));
                   },
                   [&](IsCommand auto& item) { commands.emplace_back(std::move(item)); }},
             action);
}

/// Only the source emits and decides.
Source& Device::own_source() {
  if (!parts_.source) throw internal_error("only the source emits and decides");
  return *parts_.source;
}

void Device::take(const Event& event, double now, Actions& out) {
  std::visit(Match{[&](const Received& item) {
                     const std::optional<Greeting> greeting = parts_.links.callers.greeting(item);
                     if (parts_.source && greeting)
                       parts_.links.first_request = parts_.source->first_request(greeting->hello);
                     parts_.links.received(item, now, out);
                   },
                   [&](const Computed& item) {
                     const std::optional<std::uint64_t> number = parts_.requests.computing();
                     if (parts_.source && number) parts_.source->schedule.moved(*number, now);
                     parts_.monitor.computed(item.seconds);
                     parts_.requests.computed(item.values, item.seconds, now, out);
                   },
                   [&](const ComputeFailed& item) { parts_.requests.failed(item.error, out); },
                   [&](const SensorsRead& item) { parts_.monitor.read(item.readings, out); }, [&](const Tick&) {},
                   [&](const RowsRead& item) { parts_.transfer.offers.read(item.rows, out); },
                   [&](const Loaded&) { loaded(now, out); },
                   [&](const LoadFailed& item) { parts_.preparation.failed(item.error, out); },
                   [&](const Connected& item) { parts_.links.connected(item.peer, item.address, out); },
                   [&](const Disconnected& item) { parts_.links.disconnected(item.origin, out); },
                   [&](const Rejected& item) { parts_.links.rejected(item.peer, out); },
                   [&](const Unreadable& item) { parts_.links.unreadable(item, out); }},
             event);
}

void Device::take_rest(double now, Actions& out) {
  if (parts_.source) {
    if (parts_.source->schedule.deadlines.are_due(now))
      parts_.source->schedule.deadlines.patience.answered(parts_.role->device(), parts_.pong(0), now);
    parts_.source->catch_up(now, out);
  }
  if (parts_.links.incoming.due() && now >= *parts_.links.incoming.due())
    parts_.links.incoming.acknowledgements(now, out);
  if (parts_.transfer.offers.has_waiting()) parts_.transfer.offers.stepped(out);
  if (!parts_.role->mirrored.empty()) parts_.transfer.offers.mirror(out);
  if (parts_.preparation.is_fetching()) {
    parts_.transfer.fetches.look(now);
    parts_.preparation.look(now, out);
  }
}

// -- actions that concern several parts

void Device::forward(const Forward& action, Actions& out) {
  try {
    if (std::optional<Send> send = parts_.links.outgoing.send(action)) out.push_back(std::move(*send));
  } catch (const Error& error) {
    if (error.kind != ErrorKind::run) throw;
    out.push_back(Failed{action.step.request, error});
  }
}

void Device::end(const End& action, double now, Actions& out) {
  const std::vector<Timing> steps = parts_.requests.close(action.request);
  parts_.transfer.close(action.request);
  if (action.report) {
    const Send report = parts_.timings(action.request, steps);
    parts_.source->schedule.reported(std::get<messages::Timings>(report.message), report.frames, now, out);
  }
  out.push_back(Broadcast{messages::Close{action.request, action.report}});
}

void Device::seen(const Seen& action, Actions& out) {
  const messages::Crossed message{action.step.request, parts_.role->device(), action.peer, action.step.step,
                                  announced(action.values, parts_.role->types)};
  const Frames frames = frames_of(action.values);
  if (parts_.source) {
    parts_.source->schedule.crossed(message, frames, out);
  } else {
    out.push_back(Send{Origin{parts_.role->source()}, message, frames});
  }
}

void Device::failed(Failed failed, double now, Actions& out) {
  if (failed.error.where.empty()) failed.error.where = parts_.role->device();
  if (parts_.source) return parts_.source->schedule.fail(failed, now, out);
  parts_.requests.close_failed(failed);
  const messages::Fail message{failed.request, failed.earlier, messages::problem_of(failed.error)};
  out.push_back(Send{Origin{parts_.role->source()}, message, {}});
}

void Device::loaded(double now, Actions& out) {
  parts_.preparation.loaded(out);
  if (parts_.membership.state == Membership::State::loading) {
    parts_.membership.loaded();
    if (parts_.source) parts_.source->loaded(parts_.membership.incarnation);
    parts_.look(now, out);
  }
  parts_.preparation.look(now, out);
}

void Device::linked(const Linked& action, double now, Actions& out) {
  parts_.requests.close_below(action.first_request);
  parts_.requests.opens = parts_.requests.opens || action.peer == parts_.role->source();
  parts_.look(now, out);
  parts_.transfer.fetches.linked(action.peer, out);
  parts_.preparation.linked(action.peer, out);
  parts_.preparation.look(now, out);
}

void Device::lost(const Lost& lost, double now, Actions& out) {
  if (parts_.source && lost.peer == CLIENT) {
    parts_.source->monitor.watchers.left(lost.origin);
    parts_.source->schedule.client_disconnected(lost.origin, now, out);
  } else if (parts_.source) {
    parts_.source->lost(lost.peer, lost.origin, now, out);
  } else if (!lost.origin.is_route) {
    parts_.membership.left(lost.peer, lost.origin);
    const bool is_consumer = std::ranges::find(parts_.role->send, lost.peer) != parts_.role->send.end();
    if (lost.peer == parts_.role->source() || !is_consumer) return;
    out.push_back(Send{Origin{parts_.role->source()}, messages::Unready{lost.peer}, {}});
  }
}

}  // namespace partc::core
