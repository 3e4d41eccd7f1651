/** hop BUNDLE PEER SETTINGS: one end of messages that go to and fro, for tests.bench.hop.

BUNDLE has the keys. The first line printed is the address; the line then read is the peer's. SETTINGS is JSON:

| key | meaning |
| --- | --- |
| header | the header of every message, hexadecimal digits |
| bytes | of the one frame behind it |
| hops | messages that are measured; as many again in five come before |
| compute_us | time of computing before each send |
| spins | whether it looks for messages without sleeping |
| begins | whether this end sends the first message, and measures: its last line has the microseconds of each hop |

A hop is half of what lies between a send and the answer, without the other end's computing.
*/
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <variant>
#include <vector>

#include "errors.hpp"
#include "format/codec.hpp"
#include "format/facts.gen.hpp"
#include "format/json.hpp"
#include "format/text.hpp"
#include "shell/clock.hpp"
#include "shell/transport.hpp"

using namespace partc;

namespace {

constexpr std::size_t kSwept = 1 << 19;  // floats: what a step leaves of the caches

/** Computes for a while, over more memory than the first caches hold. */
void compute(double seconds) {
  static std::vector<float> memory(kSwept);
  static std::size_t at = 0;
  for (const double end = shell::monotonic() + seconds; shell::monotonic() < end;)
    for (int count = 0; count < 512; ++count, at = (at + 16) % kSwept) memory[at] += 1.0f;
}

struct End {
  shell::Transport& transport;
  bool spins;

  /** The next event of one kind. */
  template <class Kind>
  Kind await() {
    while (true) {
      std::vector<shell::Event> events = transport.poll(spins ? std::optional(0.0) : std::nullopt);
      for (shell::Event& event : events)
        if (Kind* found = std::get_if<Kind>(&event)) return std::move(*found);
      if (spins) sched_yield();
    }
  }
};

std::int64_t number(const Object& settings, const char* key) {
  return static_cast<std::int64_t>(*settings.at(key).as<Integer>());
}

}  // namespace

int main(int count, char** words) try {
  if (count != 4) return 2;
  const Object settings = read_json_object(words[3], "the settings");
  const auto transport = shell::make_transport(shell::load_device_keys(words[1]), 1 << 30, 5.0, FRAME_LIMIT);
  const messages::AnyMessage message = decode(from_hex(*settings.at("header").as<std::string>()), FRAME_LIMIT);
  const Frame frame = Frame::copy(std::string(static_cast<std::size_t>(number(settings, "bytes")), 'x'));
  const std::int64_t hops = number(settings, "hops"), warm = hops / 5;
  const double compute_s = 1e-6 * static_cast<double>(number(settings, "compute_us"));
  const bool begins = *settings.at("begins").as<bool>();
  const core::Origin peer{words[2], false};
  End end{*transport, *settings.at("spins").as<bool>()};

  std::printf("%s\n", transport->listen("127.0.0.1:0").c_str());
  std::fflush(stdout);
  std::string address;
  std::getline(std::cin, address);
  transport->connect(words[2], address);
  end.await<core::Connected>();
  std::printf("connected\n");
  std::fflush(stdout);
  transport->watch(STDIN_FILENO);  // it goes on polling, which the other end's handshake needs
  end.await<shell::Input>();
  transport->unwatch(STDIN_FILENO);

  std::vector<double> hop_us;
  for (std::int64_t i = 0; i < hops + warm; ++i) {
    if (!begins) end.await<core::Received>();
    compute(compute_s);
    const double began = shell::monotonic();
    transport->send(peer, message, {frame});
    if (begins) end.await<core::Received>();
    if (i >= warm) hop_us.push_back(1e6 * (shell::monotonic() - began - compute_s) / 2);
  }
  if (!begins) return 0;
  for (const double each : hop_us) std::printf("%.1f ", each);
  std::printf("\n");
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();
}
