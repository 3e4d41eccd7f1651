#include "core/device/inbox.hpp"

#include <algorithm>

#include "format/facts.gen.hpp"

namespace partc::core {
namespace {

/// Messages of clients to the source.
template <class Kind>
concept OfClients = OneOf<Kind, messages::Submit, messages::Cancel, messages::Place, messages::Resume, messages::Watch>;
/// Messages of devices to the source.
template <class Kind>
concept OfDevices = OneOf<Kind, messages::Ready, messages::Unready, messages::Fail, messages::Timings,
                          messages::Crossed, messages::Pong, messages::Prepared, messages::Sensed>;
/// Messages that the links have, that are for clients, or for devices that measure.
template <class Kind>
concept OfOthers = OneOf<Kind, messages::Hello, messages::Welcome, messages::Refuse, messages::Data, messages::Ack> ||
    OneOf<Kind, messages::Token, messages::Stats, messages::Trace, messages::Result, messages::Error, messages::Placed,
          messages::Status> || OneOf<Kind, messages::Measure, messages::Measured, messages::Join, messages::Joined>;

}  // namespace

void Inbox::take(const Heard& heard, double now, Actions& out) {
  Source* source = parts_.source.get();
  std::visit(Match{[&](const messages::Ping& ping) {
                     out.push_back(Send{heard.origin, parts_.pong(ping.token), {}});
                   },
                   [&](const messages::Close& closed) { close(closed, out); },
                   [&](const messages::Shutdown&) {
                     if (heard.peer == CLIENT) out.push_back(Broadcast{messages::Shutdown{}});
                     out.push_back(Leave{});
                   },
                   [&](const messages::Addresses& moved) { parts_.links.moved(moved.addresses, out); },
                   [&](const messages::Prepare& message) { prepare(heard, message, now, out); },
                   [&](const messages::Commit& commit) {
                     if (const RolePtr role = parts_.preparation.commit(commit)) parts_.adopt(role, commit, now, out);
                   },
                   [&](const messages::Abort& abort) { parts_.preparation.abort(abort, out); },
                   [&](const messages::Sense& sense) { parts_.monitor.sense(sense, out); },
                   [&](const OfClients auto& asked) {
                     if (source != nullptr) source->asked(heard, &asked, now, out);
                   },
                   [&](const OfDevices auto& report) {
                     if (source != nullptr) source->told(heard, &report, now, out);
                   },
                   [&](const messages::Want& want) { wanted(heard, want, out); },
                   [&](const messages::Rows& message) { rows(heard, message, now, out); }, [](const OfOthers auto&) {}},
             heard.message);
}

void Inbox::tell(const Tell& action, double now, Actions& out) {
  const Role& role = *parts_.role;
  if (action.device == role.device()) {
    return take({action.device, Origin{action.device}, action.message, action.frames}, now, out);
  }
  // A device and its source talk over the connection that the device opened.
  const Map<std::string, Origin> devices = parts_.links.devices();
  const Origin own{action.device};
  const Origin* way = action.device == role.source() ? &own : devices.find(action.device);
  if (way != nullptr) out.push_back(Send{*way, action.message, action.frames});
}

/// Answer a question for rows, if the change that is prepared gives its sender that sub-module.
void Inbox::wanted(const Heard& heard, const messages::Want& want, Actions& out) {
  if (parts_.preparation.gives(heard.peer, want)) {
    return parts_.transfer.offers.wanted(heard.peer, heard.origin, want, out);
  }
  const Names& running = parts_.role->running;
  const bool runs = std::ranges::find(running, want.submodule) != running.end();
  const bool is_here = runs && parts_.requests.request(want.request) != nullptr;
  if (is_here && parts_.preparation.may_follow(want.epoch)) parts_.early.keep(heard, want);
}

void Inbox::rows(const Heard& heard, const messages::Rows& rows, double now, Actions& out) {
  try {
    parts_.transfer.came(heard.peer, rows, heard.frames, now, out);
  } catch (const Error& error) {
    if (error.kind != ErrorKind::run) throw;  // nobody answers then, and the rows are computed again
  }
}

void Inbox::close(const messages::Close& close, Actions& out) {
  const std::vector<Timing> steps = parts_.requests.close(close.request);
  parts_.transfer.close(close.request);
  if (close.report) out.push_back(parts_.timings(close.request, steps));
}

void Inbox::prepare(const Heard& heard, const messages::Prepare& message, double now, Actions& out) {
  parts_.preparation.prepare(message, join_frames(heard.frames), now, out);
  for (const Heard& early : parts_.early.taken()) take(early, now, out);
}

}  // namespace partc::core
