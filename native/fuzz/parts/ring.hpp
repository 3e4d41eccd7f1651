/** A ring of cores in virtual time, for fuzz targets: `partc/runtime/virtual` in small.

Connections carry messages both ways, in order; the side that opened one tries again when it breaks. One participant may be
heard: all that it sends goes through a hook, which carries it, or something else, or nothing.
*/
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "core/device/device.hpp"
#include "engines/null.hpp"

namespace partc::fuzz {

constexpr double kDelayS = 0.001, kRetryS = 0.05, kComputeS = 0.002;

/** What happens when; what is due at the same time happens in the order in which it was said. */
class Clock {
 public:
  double now = 0.0;

  void after(double seconds, std::function<void()> act) { turns_.push({now + seconds, count_++, std::move(act)}); }
  /** The next turn, if it is due by then; whether there was one. */
  bool turn(double until);
  std::uint64_t turns() const { return count_; }

 private:
  struct Turn {
    double at;
    std::uint64_t number;
    std::function<void()> act;
    bool operator<(const Turn& other) const { return std::pair(at, number) > std::pair(other.at, other.number); }
  };
  std::priority_queue<Turn> turns_;
  std::uint64_t count_ = 0;
};

/** One end of connections. */
class Participant {
 public:
  explicit Participant(std::string of_name) : name(std::move(of_name)) {}
  virtual ~Participant() = default;
  virtual void take(const core::Event& event) = 0;

  const std::string name;
  bool is_alive = true;
};

/** A message on its way: its header may be bytes that are none. */
struct Said {
  std::string header;
  Frames frames;
};

class Network {
 public:
  using Find = std::function<Participant*(const std::string&)>;  // null: there is none
  Network(Clock& clock, Find find) : clock_(clock), find_(std::move(find)) {}

  /** What a participant says is given to this in place of being carried; none: nobody is heard. */
  std::function<void(const Participant&, const core::Origin&, Said)> hook;
  const Participant* heard = nullptr;

  /** Opens a connection, and another one after every break. */
  void connect(Participant& opener, const std::string& name);
  void say(const Participant& sender, const core::Origin& origin, Said said);
  /** Carries a message where a connection stands; else it is lost. */
  void carry(const Participant& sender, const core::Origin& origin, const Said& said);
  /** All connections of a participant break. */
  void hang_up(const Participant& participant);
  /** What a participant calls its connections. */
  std::vector<core::Origin> origins(const Participant& participant) const;

 private:
  /** One direction of a connection. */
  struct Pipe {
    Participant* receiver;
    core::Origin origin;  // its name at the receiver
    bool is_open = true;
  };
  using Ends = std::pair<const Participant*, core::Origin>;

  void try_to_connect(Participant& opener, const std::string& name);
  void lost(Participant& end, const core::Origin& origin);

  Clock& clock_;
  Find find_;
  std::map<Ends, std::shared_ptr<Pipe>> pipes_;
  std::map<Ends, Ends> others_;  // one end of a connection → the other one
  std::uint64_t made_ = 0;
};

/** One life of a device: a core, and an engine that computes nothing of use. */
class Node : public Participant {
 public:
  Node(RolePtr role, const core::Start& start, Clock& clock, Network& network);
  void take(const core::Event& event) override;

 private:
  void perform(const core::Command& command);
  void work(const core::Command& command);
  core::Event result(const core::Command& command);
  void arm();
  void later(double seconds, core::Event event);

  Clock& clock_;
  Network& network_;
  engines::NullEngine engine_;
  core::Device device_;
  core::Due armed_;
};

/** Asks for tokens, one request after the other. */
class Client : public Participant {
 public:
  Client(RolePtr source, Network& network);
  void take(const core::Event& event) override;
  void ask(const std::vector<std::uint64_t>& prompt, std::uint64_t tokens);

  /** The tokens of requests that came to their end, and how many ended with an error. */
  std::vector<std::vector<std::uint64_t>> answers;
  std::size_t failures = 0;

 private:
  RolePtr source_;
  Network& network_;
  bool is_welcome_ = false;
  std::uint64_t tickets_ = 0;
  std::vector<std::string> unsent_;
};

/** The roles of all devices, by name, and the placements that do without one of them. */
struct Rings {
  std::map<std::string, RolePtr> roles;
  std::vector<placement::Placement> contingencies;
};

/** From native/fuzz/ring.json, which `tests/native/seeds.py` writes. */
const Rings& the_rings();

/** All devices, and a client. */
class Ring {
 public:
  explicit Ring(const Rings& rings, bool has_contingencies);

  /** Goes on until something holds, or this time has come, or the turns are used up. */
  void run(double until, std::uint64_t most_turns, const std::function<bool()>& done);
  void restart(const std::string& name);
  Node& node(const std::string& name) { return *nodes_.at(name); }
  Client& client() { return *client_; }

  Clock clock;
  Network network;

 private:
  void start(const std::string& name);

  const Rings& rings_;
  bool has_contingencies_;
  std::map<std::string, std::shared_ptr<Node>> nodes_;
  std::vector<std::shared_ptr<Node>> ended_;  // turns may still name them
  std::unique_ptr<Client> client_;
  std::uint64_t lives_ = 0;
};

}  // namespace partc::fuzz
