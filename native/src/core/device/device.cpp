#include "core/device/device.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/message_parts.hpp"

namespace partc::core {
namespace {

std::unique_ptr<Source> source_of(const RolePtr& role, const Start& start, Links& links, Membership& membership,
                                  double now) {
  if (!role->is_source()) return nullptr;
  std::vector<placement::Placement> known{role->placement};
  known.insert(known.end(), start.contingencies.begin(), start.contingencies.end());
  auto source = std::make_unique<Source>(
      Schedule(role, start.patience_s, start.rejoin_s, start.linger_s, start.first_request, now),
      Changes(role, std::move(known), links.addresses, start.patience_s), links, membership);
  source->schedule.absent = membership.absent(links.missing());
  return source;
}

/// Whether a type is one of a variant's.
template <class T, class... Kinds>
constexpr bool is_kind_of(const std::variant<Kinds...>*) {
  return (std::is_same_v<T, Kinds> || ...);
}

template <class... Kinds>
bool is_one_of(const messages::AnyMessage& message) {
  return (std::holds_alternative<Kinds>(message) || ...);
}

/// Messages of clients to the source.
bool is_asked(const messages::AnyMessage& message) {
  using namespace messages;
  return is_one_of<Submit, Cancel, Place, Resume, Watch>(message);
}

/// Messages of devices to the source.
bool is_report(const messages::AnyMessage& message) {
  using namespace messages;
  return is_one_of<Ready, Unready, Fail, Timings, Crossed, Pong, Prepared, Sensed>(message);
}

Frames frames_of(const Tensors& values) {
  Frames frames;
  for (const auto& [name, tensor] : values) {
    for (Frame& part : split_frames(tensor.bytes)) frames.push_back(std::move(part));
  }
  return frames;
}

}  // namespace

Device::Device(RolePtr role, const Start& start, double now)
    : role_(std::move(role)),
      links_(role_, start.incarnation, start.info),
      membership_(role_, start.incarnation),
      requests_(std::make_shared<const Script>(role_)),
      monitor_(links_, requests_),
      transfer_(role_, requests_, links_, start.patience_s),
      preparation_(role_, start.incarnation, links_, requests_, transfer_, std::max(start.patience_s, start.rejoin_s)),
      source_(source_of(role_, start, links_, membership_, now)) {}

Due Device::deadline() const {
  return soonest({links_.due(), transfer_.due(), preparation_.due(), source_ ? source_->due() : Due()});
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
    requests_.advance(now, actions);
    if (actions.empty()) return;
    carry_out(std::move(actions), now, commands);
  }
}

// -- how actions reach the part that they are for

/// Take each action to its part; what follows from it comes before the next one.
void Device::carry_out(Actions actions, double now, std::vector<Command>& commands) {
  for (Action& action : actions) {
    journal_.note(action, now, commands);
    const bool is_command = std::visit(
        [&](auto& item) {
          using Kind = std::decay_t<decltype(item)>;
          if constexpr (is_kind_of<Kind>(static_cast<const Command*>(nullptr))) {
            if constexpr (std::is_same_v<Kind, Compute>) {
              if (item.resets) transfer_.reset(item.slot);
            }
            commands.emplace_back(std::move(item));
            return true;
          }
          return false;
        },
        action);
    if (is_command) continue;
    Actions following;
    act(action, now, following);
    carry_out(std::move(following), now, commands);
  }
}

void Device::act(Action& action, double now, Actions& out) {
  if (auto* delivered = std::get_if<Delivered>(&action)) {
    if (source_) source_->schedule.moved(delivered->step.request, now);
    requests_.deliver(delivered->peer, delivered->step, delivered->values, now, out);
  } else if (auto* forwarded = std::get_if<Forward>(&action)) {
    forward(*forwarded, out);
  } else if (auto* begin = std::get_if<Begin>(&action)) {
    requests_.begin(begin->step, begin->inputs, now, out);
  } else if (auto* ended = std::get_if<End>(&action)) {
    end(*ended, now, out);
  } else if (auto* traced = std::get_if<Seen>(&action)) {
    seen(*traced, out);
  } else if (auto* failure = std::get_if<Failed>(&action)) {
    failed(*failure, now, out);
  } else if (auto* message = std::get_if<Heard>(&action)) {
    heard(*message, now, out);
  } else if (auto* stands = std::get_if<Linked>(&action)) {
    linked(*stands, now, out);
  } else if (auto* greeted = std::get_if<Greeted>(&action)) {
    if (source_) source_->greeted(greeted->hello, now, out);
  } else if (auto* gone = std::get_if<Lost>(&action)) {
    lost(*gone, now, out);
  } else if (auto* misfit = std::get_if<Misfit>(&action)) {
    if (membership_.was_complete()) {
      failed({{}, misfit->error}, now, out);
    } else {
      out.push_back(Leave{misfit->error});
    }
  } else if (auto* broadcast = std::get_if<Broadcast>(&action)) {
    for (const auto& [name, origin] : links_.devices()) out.push_back(Send{origin, broadcast->message, {}});
  } else if (auto* told = std::get_if<Tell>(&action)) {
    tell(*told, now, out);
  } else if (auto* emitted = std::get_if<Emitted>(&action)) {  // the rest is for the source alone
    source_->schedule.emitted(emitted->step, emitted->values, now, out);
  } else if (auto* stalled = std::get_if<Stalled>(&action)) {
    source_->stalled(*stalled, now, out);
  } else if (auto* hold = std::get_if<Hold>(&action)) {
    source_->schedule.hold(hold->at_once);
  } else if (auto* broken = std::get_if<Broken>(&action)) {
    source_->monitor.broken(broken->devices);
    source_->schedule.lost(broken->devices, now, out);
  } else if (std::holds_alternative<Mended>(action)) {
    source_->monitor.mended();
    source_->schedule.go_on(now, out);
  } else if (auto* replaced = std::get_if<Replaced>(&action)) {
    source_->replaced(*replaced, now, out);
  } else if (auto* adopted = std::get_if<Adopt>(&action)) {
    source_->adopt(*adopted, now, out);
  }
}

void Device::take(const Event& event, double now, Actions& out) {
  std::visit(Match{[&](const Received& item) {
                     const std::optional<Links::Greeting> greeting = links_.greeting(item);
                     if (source_ && greeting) links_.first_request = source_->first_request(greeting->hello);
                     links_.received(item, now, out);
                   },
                   [&](const Computed& item) {
                     const std::optional<std::uint64_t> number = requests_.computing();
                     if (source_ && number) source_->schedule.moved(*number, now);
                     monitor_.computed(item.seconds);
                     requests_.computed(item.values, item.seconds, now, out);
                   },
                   [&](const ComputeFailed& item) { requests_.failed(item.error, out); },
                   [&](const SensorsRead& item) { monitor_.read(item.readings, out); },
                   [&](const Tick&) {},
                   [&](const RowsRead& item) { transfer_.read(item.rows, out); },
                   [&](const Loaded&) { loaded(now, out); },
                   [&](const LoadFailed& item) { preparation_.failed(item.error, out); },
                   [&](const Connected& item) { links_.connected(item.peer, item.address, out); },
                   [&](const Disconnected& item) { links_.disconnected(item.origin, out); },
                   [&](const Rejected& item) { links_.rejected(item.peer, out); },
                   [&](const Unreadable& item) { links_.unreadable(item, out); }},
             event);
}

void Device::take_rest(double now, Actions& out) {
  if (source_) {
    if (source_->schedule.looks(now)) source_->schedule.patience.answered(role_->device(), pong(0), now);
    source_->catch_up(now, out);
  }
  if (links_.due() && now >= *links_.due()) links_.acknowledgements(now, out);
  if (transfer_.has_waiting()) transfer_.stepped(out);
  if (!role_->mirrored.empty()) transfer_.mirror(out);
  if (preparation_.is_fetching()) {
    transfer_.look(now);
    preparation_.look(now, out);
  }
}

// -- actions that concern several parts

void Device::forward(const Forward& action, Actions& out) {
  try {
    if (std::optional<Send> send = links_.send(action)) out.push_back(std::move(*send));
  } catch (const Error& error) {
    if (error.kind != ErrorKind::run) throw;
    out.push_back(Failed{action.step.request, error});
  }
}

void Device::end(const End& action, double now, Actions& out) {
  const std::vector<Timing> steps = requests_.close(action.request);
  transfer_.close(action.request);
  if (action.report) {
    const Send report = timings(action.request, steps);
    source_->schedule.reported(std::get<messages::Timings>(report.message), report.frames, now, out);
  }
  out.push_back(Broadcast{messages::Close{action.request, action.report}});
}

void Device::seen(const Seen& action, Actions& out) {
  const messages::Crossed message{action.step.request, role_->device(), action.peer, action.step.step,
                                  announced(action.values, role_->types)};
  const Frames frames = frames_of(action.values);
  if (source_) {
    source_->schedule.crossed(message, frames, out);
  } else {
    out.push_back(Send{Origin{role_->source()}, message, frames});
  }
}

void Device::failed(Failed failed, double now, Actions& out) {
  if (failed.error.where.empty()) failed.error.where = role_->device();
  if (source_) return source_->schedule.fail(failed, now, out);
  requests_.close_failed(failed);
  const messages::Fail message{failed.request, failed.earlier, messages::problem_of(failed.error)};
  out.push_back(Send{Origin{role_->source()}, message, {}});
}

void Device::loaded(double now, Actions& out) {
  preparation_.loaded(out);
  if (membership_.state == Membership::State::loading) {
    membership_.loaded();
    if (source_) source_->loaded(membership_.incarnation);
    look(now, out);
  }
  preparation_.look(now, out);
}

void Device::linked(const Linked& action, double now, Actions& out) {
  requests_.close_below(action.first_request);
  requests_.opens = requests_.opens || action.peer == role_->source();
  look(now, out);
  transfer_.linked(action.peer, out);
  preparation_.linked(action.peer, out);
  preparation_.look(now, out);
}

void Device::lost(const Lost& lost, double now, Actions& out) {
  if (source_ && lost.peer == CLIENT) {
    source_->monitor.watchers.left(lost.origin);
    source_->schedule.away(lost.origin, now, out);
  } else if (source_) {
    source_->lost(lost.peer, lost.origin, now, out);
  } else if (!lost.origin.is_route) {
    membership_.left(lost.peer, lost.origin);
    const bool is_consumer = std::ranges::find(role_->send, lost.peer) != role_->send.end();
    if (lost.peer == role_->source() || !is_consumer) return;
    out.push_back(Send{Origin{role_->source()}, messages::Unready{lost.peer}, {}});
  }
}

/// Find out whether the ring stands, as far as this device sees it.
void Device::look(double now, Actions& out) {
  if (source_) {
    source_->look(now, out);
  } else {
    membership_.look(links_.missing(), requests_.next_request, out);
  }
}

// -- changes of placement

void Device::tell(const Tell& action, double now, Actions& out) {
  if (action.device == role_->device()) {
    return heard({action.device, Origin{action.device}, action.message, action.frames}, now, out);
  }
  // A device and its source talk over the connection that the device opened.
  const Map<std::string, Origin> devices = links_.devices();
  const Origin own{action.device};
  const Origin* way = action.device == role_->source() ? &own : devices.find(action.device);
  if (way != nullptr) out.push_back(Send{*way, action.message, action.frames});
}

/// A placement is in force.
void Device::adopt(RolePtr role, const messages::Commit& commit, double now, Actions& out) {
  role_ = role;
  out.push_back(in_force(*role));
  early_.taken();
  requests_.resume(std::make_shared<const Script>(role), commit.requests, now);
  monitor_.adopt();
  transfer_.adopt(role);
  preparation_.adopt(role, out);
  links_.adopt(role, out);
  if (source_) return;
  membership_.role = role;
  look(now, out);
}

// -- messages that are neither values nor about links

/// Take a message that its sender may send (`rights`).
void Device::heard(const Heard& heard, double now, Actions& out) {
  const messages::AnyMessage& message = heard.message;
  if (const auto* ping = std::get_if<messages::Ping>(&message)) {
    out.push_back(Send{heard.origin, pong(ping->token), {}});
  } else if (std::holds_alternative<messages::Shutdown>(message)) {
    if (heard.peer == CLIENT) out.push_back(Broadcast{messages::Shutdown{}});
    out.push_back(Leave{});
  } else if (is_asked(message)) {
    if (source_) source_->asked(heard, now, out);
  } else if (is_report(message)) {
    if (source_) source_->told(heard, now, out);
  } else if (const auto* want = std::get_if<messages::Want>(&message)) {
    wanted(heard, *want, out);
  } else if (const auto* rows = std::get_if<messages::Rows>(&message)) {
    try {
      transfer_.came(heard.peer, *rows, heard.frames, now, out);
    } catch (const Error& error) {
      if (error.kind != ErrorKind::run) throw;  // nobody answers then, and the rows are computed again
    }
  } else {
    heard_from_source(heard, now, out);
  }
}

/// Answer a question for rows, if the change that is prepared gives its sender that sub-module.
void Device::wanted(const Heard& heard, const messages::Want& want, Actions& out) {
  if (preparation_.gives(heard.peer, want)) return transfer_.wanted(heard.peer, heard.origin, want, out);
  const bool runs = std::ranges::find(role_->running, want.submodule) != role_->running.end();
  const bool is_here = runs && requests_.request(want.request) != nullptr;
  if (is_here && preparation_.may_follow(want.epoch)) early_.keep(heard, want);
}

void Device::heard_from_source(const Heard& heard, double now, Actions& out) {
  const messages::AnyMessage& message = heard.message;
  if (const auto* closed = std::get_if<messages::Close>(&message)) {
    close(*closed, out);
  } else if (const auto* addresses = std::get_if<messages::Addresses>(&message)) {
    links_.moved(addresses->addresses, out);
  } else if (const auto* prepare = std::get_if<messages::Prepare>(&message)) {
    preparation_.prepare(*prepare, join_frames(heard.frames), now, out);
    for (const Heard& early : early_.taken()) this->heard(early, now, out);
  } else if (const auto* commit = std::get_if<messages::Commit>(&message)) {
    if (const RolePtr role = preparation_.commit(*commit)) adopt(role, *commit, now, out);
  } else if (const auto* abort = std::get_if<messages::Abort>(&message)) {
    preparation_.abort(*abort, out);
  } else if (const auto* sense = std::get_if<messages::Sense>(&message)) {
    monitor_.sense(*sense, out);
  }
}

/// The state of this device, as the answer to `ping`.
messages::Pong Device::pong(std::uint64_t token) const {
  return {token, requests_.computing().has_value(), requests_.doing()};
}

void Device::close(const messages::Close& close, Actions& out) {
  const std::vector<Timing> steps = requests_.close(close.request);
  transfer_.close(close.request);
  if (close.report) out.push_back(timings(close.request, steps));
}

/// The message about the times of a request.
Send Device::timings(std::uint64_t number, const std::vector<Timing>& steps) const {
  const auto [columns, table] = timing_table(steps);
  const messages::Timings message{number, role_->device(), columns, {{"timing", "float64", table.shape}}};
  return {Origin{role_->source()}, message, split_frames(table.bytes)};
}

}  // namespace partc::core
