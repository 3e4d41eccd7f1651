#include "shell/runner.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <utility>

#include "errors.hpp"
#include "format/files.hpp"
#include "format/json.hpp"
#include "format/match.hpp"
#include "format/text.hpp"
#include "shell/addresses.hpp"
#include "shell/clock.hpp"
#include "shell/keys.hpp"
#include "shell/limits.hpp"

namespace partc::shell {
namespace {

std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) throw internal_error("the system has no random bits");
  return bits;
}

std::uint64_t milliseconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

/** The peers in a line from the process that started this one. */
std::map<std::string, std::string> peers_in(const std::string& line) {
  const char* where = "standard input";
  const Object object = read_json_object(line, where);
  const Value* given = object.find("peers");
  const Object* peers = given ? given->as<Object>() : nullptr;
  if (!peers) throw run_error("a line is {\"peers\": {NAME: HOST:PORT, …}}", where);
  std::map<std::string, std::string> found;
  for (const auto& [name, address] : *peers) {
    const std::string* text = address.as<std::string>();
    if (!text) throw run_error("an address is a text", where);
    found[name] = *text;
  }
  return found;
}

}  // namespace

Runner::Runner(Settings settings)
    : settings_(std::move(settings)),
      role_(load_role(settings_.bundle)),
      transport_(make_transport(settings_.insecure ? std::nullopt : std::optional(load_device_keys(settings_.bundle)),
                                frame_limit(*role_), settings_.patience_s, header_limit(*role_))),
      address_(transport_->listen(listen_address(*role_, settings_))),
      device_(new_device()),
      loader_(role_, settings_.bundle),
      work_(loader_),
      spin_wait_([this](std::optional<double> timeout_s) { return transport_->poll(timeout_s); }, monotonic) {}

std::unique_ptr<core::Device> Runner::new_device() const {
  core::Start start;
  start.incarnation = random_bits();
  start.first_request = milliseconds_since_1970();
  start.patience_s = settings_.patience_s;
  start.rejoin_s = settings_.rejoin_s;
  start.linger_s = settings_.linger_s;
  start.contingencies = load_contingencies(*role_, settings_.bundle);
  start.info.set("patience_s", settings_.patience_s);
  return std::make_unique<core::Device>(role_, start, monotonic());
}

void Runner::serve() {
  transport_->watch(signals_.descriptor());
  transport_->watch(loader_.told());
  work_until_asked();
  transport_.reset();
  if (loader_.is_busy()) _exit(0);  // an engine that loads cannot be interrupted, and there is nothing to lose
}

void Runner::work_until_asked() {
  standby_.emplace([this] { look_after(); }, [this] { return transport_->has_unsent(); });
  begin();
  loader_.begin();
  while (!stopping_) turn();
  standby_.reset();
}

void Runner::begin() {
  note("listening", {{"address", {address_}}});
  if (settings_.stdio) {
    transport_->watch(STDIN_FILENO);
    tell({{"device", {role_->device()}}, {"listening", {address_}}}, "");
  } else {
    tell({}, role_->device() + " listens on " + address_);
    meet(settings_.peers);
  }
}

// -- the loop

void Runner::turn() {
  const bool waits = work_.empty();
  for (Event& event : events()) take(std::move(event));
  if (!work_.empty()) {
    if (waits) spin_wait_.end();
    do_work();
    spin_wait_.begin();
  }
  catch_up();
}

/** One sub-module at most, and what follows it at once: tokens are drawn, and rows are read and written. */
void Runner::do_work() {
  do {
    Task task = work_.take();
    if (const auto answer = standby_->away([&] { return work_.done(task); })) on(*answer);
  } while (!work_.empty() && !work_.computes_next());
}

/** A turn of the loop while a step is computed. */
void Runner::look_after() {
  for (Event& event : transport_->poll(0.0)) take(std::move(event));
  catch_up();
}

/** Do what nobody waits for: the next step is on its way, or under computation. */
void Runner::catch_up() {
  perform(device_->catch_up(monotonic()));
  if (const std::uint64_t fresh = strangers_.to_tell(transport_->strangers(), monotonic()))
    note("strangers", {{"connections", {static_cast<std::int64_t>(fresh)}}});
  if (!std::exchange(sensing_, false)) return;
  if (!sensors_) sensors_.emplace();
  on(core::SensorsRead{sensors_->read()});
  perform(device_->catch_up(monotonic()));
}

std::vector<Event> Runner::events() {
  if (!work_.empty()) return transport_->poll(0.0);
  if (!device_->has_requests()) standby_->rest();
  const bool sleeps = settings_.frugal || !device_->has_requests();
  return sleeps ? transport_->poll(timeout()) : spin_wait_.wait(timeout());
}

std::optional<double> Runner::timeout() const {
  const double now = monotonic();
  const core::Due deadline = device_->deadline();
  const std::optional<double> due = strangers_.due_s(transport_->strangers(), now);
  if (!deadline) return due;
  return std::min(std::max(0.0, *deadline - now), due.value_or(std::numeric_limits<double>::infinity()));
}

// -- events into the core

void Runner::take(Event event) {
  std::visit(Match{
                 [this](Input& input) { take(input); },
                 [this](core::Connected& connected) {
                   const std::string towards = transport_->address_of(connected.peer);
                   connected.address = address_towards(towards, address_, settings_.advertise);
                   on(std::move(connected));
                 },
                 [this](auto& other) { on(std::move(other)); },
             },
             event);
}

void Runner::take(const Input& input) {
  if (input.descriptor == loader_.told()) {
    for (Loader::Outcome& outcome : loader_.results())
      std::visit([this](auto& result) { on(std::move(result)); }, outcome);
  } else if (settings_.stdio && input.descriptor == STDIN_FILENO) {
    read_input();
  } else {
    end("a signal came");
  }
}

void Runner::on(const core::Event& event) { perform(device_->react(event, monotonic())); }

// -- commands out of it

void Runner::perform(std::vector<core::Command> commands) {
  for (core::Command& command : commands) std::visit([this](auto& one) { perform(one); }, command);
}

void Runner::perform(core::Send& send) { transport_->send(send.origin, send.message, send.frames); }

/** Connect to a device that the source names; without an address, as soon as it is known. */
void Runner::perform(core::Connect& connect) {
  const auto& [peer, address] = connect;
  const auto known = known_.find(peer);
  if (address.empty() && known == known_.end()) {
    sought_.insert(peer);
    note("address-unknown", {{"peer", {peer}}});
    return;
  }
  try {
    transport_->connect(peer, address.empty() ? known->second : address);
  } catch (const Error& error) {  // of an address that came in a message, which must end no runner
    if (error.kind != ErrorKind::run) throw;
    note("address-refused", {{"peer", {peer}}, {"reason", {std::string(error.what())}}});
  }
}

void Runner::perform(core::Announce&) {
  note(role_->is_source() ? "complete" : "linked", {});
  tell({{"ready", {true}}}, role_->device() + (role_->is_source() ? ": the ring is complete" : ": linked"));
}

void Runner::perform(core::Leave& leave) {
  if (leave.error) throw *leave.error;
  end("it was told to");
}

// -- connections to other devices

/** Connect to those that this device needs at once, and to those that were sought. */
void Runner::meet(const std::map<std::string, std::string>& given) {
  known_ = known_addresses(*role_, given);
  std::set<std::string> names = first_peers(*role_);
  for (const auto& [name, address] : known_)
    if (sought_.erase(name)) names.insert(name);
  for (const std::string& name : names) transport_->connect(name, known_.at(name));
}

void Runner::note(std::string_view event, const Object& fields) const {
  write_log(settings_.log, role_->device(), event, fields);
}

void Runner::end(const std::string& reason) {
  note("stopping", {{"reason", {reason}}});
  stopping_ = true;
}

// -- the process that started this one

void Runner::read_input() {
  char bytes[65536];
  const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
  if (count <= 0) {
    transport_->unwatch(STDIN_FILENO);
    end("its input has ended");
    return;
  }
  input_.append(bytes, static_cast<std::size_t>(count));
  for (std::size_t end = 0; (end = input_.find('\n')) != std::string::npos; input_.erase(0, end + 1))
    meet(peers_in(input_.substr(0, end)));
}

void Runner::tell(const Object& fields, const std::string& text) const {
  const std::string line = settings_.stdio ? compact_json({fields}) : text;
  if (line.empty()) return;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace partc::shell
