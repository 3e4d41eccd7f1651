#include "parts/ring.hpp"

#include <fstream>
#include <iterator>

#include "core/device/sampling.hpp"
#include "errors.hpp"
#include "format/codec.hpp"
#include "format/json.hpp"
#include "format/match.hpp"
#include "fuzz.hpp"

namespace partc::fuzz {

using namespace core;

bool Clock::turn(double until) {
  if (turns_.empty() || turns_.top().at > until) return false;
  const Turn next = turns_.top();
  turns_.pop();
  now = std::max(now, next.at);
  next.act();
  return true;
}

// -- connections

void Network::connect(Participant& opener, const std::string& name) {
  clock_.after(kDelayS, [this, &opener, name] { try_to_connect(opener, name); });
}

void Network::try_to_connect(Participant& opener, const std::string& name) {
  if (!opener.is_alive) return;
  Participant* listener = find_(name);
  if (listener == nullptr || pipes_.contains({&opener, {name, false}})) return;
  if (!listener->is_alive) return clock_.after(kRetryS, [this, &opener, name] { try_to_connect(opener, name); });
  const Origin there{name, false}, back{opener.name + "/" + std::to_string(++made_), true};
  const Ends one{&opener, there}, other{listener, back};
  pipes_[one] = std::make_shared<Pipe>(Pipe{listener, back});
  pipes_[other] = std::make_shared<Pipe>(Pipe{&opener, there});
  others_[one] = other;
  others_[other] = one;
  opener.take(Connected{name, ""});
}

void Network::say(const Participant& sender, const Origin& origin, Said said) {
  if (&sender == heard) return hook(sender, origin, std::move(said));
  carry(sender, origin, said);
}

void Network::carry(const Participant& sender, const Origin& origin, const Said& said) {
  const auto found = pipes_.find({&sender, origin});
  if (found == pipes_.end()) return;
  clock_.after(kDelayS, [pipe = found->second, said, user = sender.name] {
    if (!pipe->is_open || !pipe->receiver->is_alive) return;
    Received event{pipe->origin, user, {}, said.frames};
    try {
      event.message = decode(said.header, FRAME_LIMIT);
    } catch (const Error& error) {
      require(error.kind != ErrorKind::internal);
      return pipe->receiver->take(Unreadable{pipe->origin, error});
    }
    pipe->receiver->take(event);
  });
}

void Network::lost(Participant& end, const Origin& origin) {
  clock_.after(kDelayS, [this, &end, origin] {
    if (!end.is_alive) return;
    end.take(Disconnected{origin});
    if (!origin.is_route) try_to_connect(end, origin.name);
  });
}

void Network::hang_up(const Participant& participant) {
  for (const Origin& origin : origins(participant)) {
    const Ends one{&participant, origin}, other = others_.at(one);
    for (const Ends& end : {one, other}) {
      Pipe& pipe = *pipes_.at(end);
      pipe.is_open = false;
      lost(*pipe.receiver, pipe.origin);
    }
    for (const Ends& end : {one, other}) {
      pipes_.erase(end);
      others_.erase(end);
    }
  }
}

std::vector<Origin> Network::origins(const Participant& participant) const {
  std::vector<Origin> found;
  for (const auto& [ends, pipe] : pipes_)
    if (ends.first == &participant) found.push_back(ends.second);
  return found;
}

// -- devices

Node::Node(RolePtr role, const Start& start, Clock& clock, Network& network)
    : Participant(role->device()),
      clock_(clock),
      network_(network),
      engine_(role->build),
      device_(role, start, clock.now) {
  std::vector<std::string> peers = peers_of(*role);
  for (const std::string& submodule : role->running) engine_.load(submodule);
  for (const std::string& peer : peers) network.connect(*this, peer);
  later(kDelayS, Loaded{});
}

void Node::later(double seconds, Event event) {
  clock_.after(seconds, [this, event = std::move(event)] { take(event); });
}

void Node::take(const Event& event) {
  if (!is_alive) return;
  for (const Command& command : device_.on(event, clock_.now)) perform(command);
  arm();
}

void Node::arm() {
  const Due due = device_.deadline();
  if (!due || (armed_ && *armed_ <= *due && *armed_ > clock_.now)) return;
  armed_ = std::max(*due, clock_.now);
  clock_.after(*armed_ - clock_.now, [this, at = *armed_] {
    if (armed_ == at) armed_.reset();
    const Due now_due = device_.deadline();
    if (now_due && *now_due <= clock_.now) take(Tick{});
    else if (is_alive) arm();
  });
}

void Node::perform(const Command& command) {
  std::visit(Match{
                 [&](const Send& item) {
                   network_.say(*this, item.origin, {encode(item.message), item.frames});
                 },
                 [&](const Compute&) { work(command); },
                 [&](const Draw&) { work(command); },
                 [&](const ReadSensors&) { later(0.0, SensorsRead{}); },
                 [&](const Announce&) {},
                 [&](const Log&) {},
                 [&](const Leave&) {
                   is_alive = false;
                   network_.hang_up(*this);
                 },
                 [&](const Load& item) {
                   for (const std::string& submodule : item.submodules) engine_.load(submodule);
                   later(kDelayS, Loaded{item.epoch});
                 },
                 [&](const Release& item) {
                   for (const std::string& submodule : item.submodules) engine_.release(submodule);
                 },
                 [&](const Reset& item) { engine_.reset(item.slot, item.dims); },
                 [&](const ReadRows& item) {
                   later(0.0, RowsRead{engine_.read_rows(item.submodule, item.slot, item.state, item.row, item.begin,
                                                         item.end)});
                 },
                 [&](const WriteRows& item) {
                   engine_.write_rows(item.submodule, item.slot, item.state, item.row, item.begin, item.rows);
                 },
                 [&](const Connect& item) { network_.connect(*this, item.peer); },
             },
             command);
}

void Node::work(const Command& command) {
  try {
    later(kComputeS, result(command));
  } catch (const Error& error) {
    require(error.kind != ErrorKind::internal);
    later(kComputeS, ComputeFailed{error});
  }
}

Event Node::result(const Command& command) {
  if (const Draw* draw = std::get_if<Draw>(&command)) return Computed{drawn(*draw), kComputeS};
  const Compute& compute = std::get<Compute>(command);
  if (compute.resets) engine_.reset(compute.slot, compute.dims);
  return Computed{engine_.run(compute.submodule, compute.slot, compute.inputs, compute.dims), kComputeS};
}

// -- the client

Client::Client(RolePtr source, Network& network)
    : Participant(std::string(CLIENT)), source_(std::move(source)), network_(network) {
  network.connect(*this, source_->device());
}

void Client::take(const Event& event) {
  const Origin source{source_->device(), false};
  if (std::holds_alternative<Connected>(event)) {
    messages::Hello hello;
    hello.name = name;
    hello.plan = source_->plan_digest();
    hello.placement = source_->placement_digest();
    hello.epoch = source_->epoch();
    return network_.say(*this, source, {encode(hello), {}});
  }
  if (std::holds_alternative<Disconnected>(event)) is_welcome_ = false;
  const Received* received = std::get_if<Received>(&event);
  if (received == nullptr) return;
  if (const auto* result = std::get_if<messages::Result>(&received->message)) answers.push_back(result->tokens.at(0));
  if (std::holds_alternative<messages::Error>(received->message)) ++failures;
  if (!std::holds_alternative<messages::Welcome>(received->message)) return;
  is_welcome_ = true;
  for (const std::string& header : std::exchange(unsent_, {})) network_.say(*this, source, {header, {}});
}

void Client::ask(const std::vector<std::uint64_t>& prompt, std::uint64_t tokens) {
  messages::Submit submit;
  submit.ticket.data.assign(16, static_cast<char>(++tickets_));
  submit.prompts = {prompt};
  submit.max_new_tokens = tokens;
  submit.ignore_eos = true;
  if (!is_welcome_) return unsent_.push_back(encode(submit));
  network_.say(*this, {source_->device(), false}, {encode(submit), {}});
}

// -- all of them

const Rings& the_rings() {
  static const Rings rings = [] {
    std::ifstream file(PARTC_FUZZ_RING, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const Object raw = read_json_object(text, "ring.json");
    Rings found;
    const placement::Placement placement = placement::read_placement(raw.at("placement"));
    for (const Value& one : *raw.at("builds").as<List>()) {
      auto build = std::make_shared<const build::Build>(build::read_build(one));
      found.roles[build->device] = std::make_shared<const Role>(build, placement);
    }
    for (const Value& one : *raw.at("contingencies").as<List>())
      found.contingencies.push_back(placement::read_placement(one));
    return found;
  }();
  return rings;
}

Ring::Ring(const Rings& rings, bool has_contingencies)
    : network(clock,
              [this](const std::string& name) -> Participant* {
                const auto found = nodes_.find(name);
                return found == nodes_.end() ? nullptr : found->second.get();
              }),
      rings_(rings),
      has_contingencies_(has_contingencies) {
  for (const auto& [name, role] : rings.roles) start(name);
  client_ = std::make_unique<Client>(rings.roles.at(rings.roles.begin()->second->source()), network);
}

void Ring::start(const std::string& name) {
  Start start;
  start.incarnation = ++lives_;
  start.first_request = 1 + static_cast<std::uint64_t>(clock.now * 1000);
  start.rejoin_s = 20.0;
  if (has_contingencies_) start.contingencies = rings_.contingencies;
  nodes_[name] = std::make_shared<Node>(rings_.roles.at(name), start, clock, network);
}

void Ring::restart(const std::string& name) {
  std::shared_ptr<Node>& node = nodes_.at(name);
  node->is_alive = false;
  network.hang_up(*node);
  ended_.push_back(node);
  start(name);
}

void Ring::run(double until, std::uint64_t most_turns, const std::function<bool()>& done) {
  for (std::uint64_t turn = 0; turn < most_turns && !done() && clock.turn(until); ++turn) continue;
}

}  // namespace partc::fuzz
