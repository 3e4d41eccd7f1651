/** transport BUNDLE FRAME_LIMIT PATIENCE_S: sockets driven by lines of JSON; BUNDLE has the keys, `-` means none.

| line | answer |
| --- | --- |
| `{"listen": ADDRESS}` | `{"address": HOST:PORT}` |
| `{"connect": NAME, "address": ADDRESS}` | `{}` |
| `{"send": ORIGIN, "route": BOOL, "header": HEX, "frames": [HEX, …]}` | `{"taken": BOOL}` |
| `{"poll": MILLISECONDS}` | `{"events": [[KIND, ORIGIN, …], …]}` |

A route is hexadecimal digits. Where the transport refuses, the answer is `{"error": TEXT}`.
*/
#include "shell/transport.hpp"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "errors.hpp"
#include "format/codec.hpp"
#include "format/json.hpp"
#include "format/text.hpp"

using namespace partc;

namespace {

const std::string& text(const Object& object, const char* key) { return *object.at(key).as<std::string>(); }

Value origin_of(const core::Origin& origin) { return {origin.is_route ? to_hex(origin.name) : origin.name}; }

List told(const std::string& kind, Value origin) { return {{kind}, std::move(origin)}; }

List list_of(const core::Connected& event) { return told("connected", {event.peer}); }
List list_of(const core::Disconnected& event) { return told("disconnected", origin_of(event.origin)); }
List list_of(const core::Rejected& event) { return told("rejected", {event.peer}); }
List list_of(const shell::Input& event) { return told("input", {Integer{event.descriptor}}); }
List list_of(const core::Unreadable& event) {
  List found = told("unreadable", origin_of(event.origin));
  found.push_back({event.error.message});
  return found;
}
List list_of(const core::Received& event) {
  List found = told("received", origin_of(event.origin)), frames;
  found.push_back({event.user.value_or("")});
  found.push_back({to_hex(encode(event.message))});
  for (const Frame& frame : event.frames) frames.push_back({to_hex(frame.text())});
  found.push_back({std::move(frames)});
  return found;
}

Object answer(shell::Transport& transport, const Object& asked) {
  Object found;
  if (asked.contains("listen")) found.set("address", {transport.listen(text(asked, "listen"))});
  if (asked.contains("connect")) transport.connect(text(asked, "connect"), text(asked, "address"));
  if (asked.contains("send")) {
    const bool is_route = *asked.at("route").as<bool>();
    const core::Origin origin{is_route ? from_hex(text(asked, "send")) : text(asked, "send"), is_route};
    Frames frames;
    for (const Value& frame : *asked.at("frames").as<List>())
      frames.push_back(Frame::copy(from_hex(*frame.as<std::string>())));
    const messages::AnyMessage message = decode(from_hex(text(asked, "header")), FRAME_LIMIT);
    found.set("taken", {transport.send(origin, message, frames)});
  }
  if (asked.contains("poll")) {
    List events;
    const auto seconds = static_cast<double>(*asked.at("poll").as<Integer>()) / 1000;
    for (const shell::Event& event : transport.poll(seconds))
      events.push_back({std::visit([](const auto& one) { return list_of(one); }, event)});
    found.set("events", {std::move(events)});
  }
  return found;
}

}  // namespace

int main(int count, char** words) try {
  if (count != 4) return 2;
  const std::string bundle = words[1];
  std::optional<shell::Keys> keys;
  if (bundle != "-") keys = shell::load_device_keys(bundle);
  const std::uint64_t frame_limit = std::strtoull(words[2], nullptr, 10);
  const auto transport = shell::make_transport(keys, frame_limit, std::atof(words[3]), FRAME_LIMIT);
  for (std::string line; std::getline(std::cin, line);) {
    Object found;
    try {
      found = answer(*transport, read_json_object(line, "a line"));
    } catch (const Error& error) {
      found.set("error", {std::string(error.what())});
    }
    std::printf("%s\n", compact_json({found}).c_str());
    std::fflush(stdout);
  }
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();
}
