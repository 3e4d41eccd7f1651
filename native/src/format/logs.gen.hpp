// Written by `python -m partc.format.native native/src/format`: change the Python structs, not this file.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace partc {

/// One event of a log.
struct LogEvent {
  std::string_view name;
  std::uint64_t level;  // index in LOG_LEVELS
  std::string_view sentence;  // `{field}` stands for the value of a field
};

inline constexpr std::array<std::string_view, 5> LOG_LEVELS{{"debug", "info", "warning", "error", "none"}};
inline constexpr std::array<std::string_view, 2> LOG_FORMATS{{"text", "json"}};

inline constexpr std::array<LogEvent, 25> LOG_EVENTS{{
    {"listening", 1,
     "listens on {address}"},
    {"stopping", 1,
     "stops: {reason}"},
    {"failed", 3,
     "ends with exit code {exit_code}: {reason}"},
    {"address-unknown", 2,
     "the address of {peer} is not known yet; --peer {peer}=HOST:PORT tells it"},
    {"address-refused", 2,
     "{reason}"},
    {"linked", 1,
     "all links of this device stand"},
    {"complete", 1,
     "the ring is complete"},
    {"joined", 1,
     "{peer} has connected"},
    {"back", 1,
     "{peer} is back after {seconds} s"},
    {"disconnected", 2,
     "the connection of {peer} is closed"},
    {"link-up", 0,
     "the link to {peer} stands"},
    {"link-down", 2,
     "the link to {peer} is down"},
    {"refused", 2,
     "a connection is refused: {reason}"},
    {"strangers", 2,
     "connections that spoke another protocol, or had no key of this ring: {connections}"},
    {"misfit", 3,
     "this device does not fit the ring: {reason}"},
    {"stalled", 2,
     "a request stands still: {reason}"},
    {"lost", 2,
     "what {devices} had is lost; requests go on from what the others have"},
    {"broken", 3,
     "lost for good: {devices}; no placement does without"},
    {"healed", 1,
     "the ring goes on ({reason}); requests stood still for {seconds} s"},
    {"moved", 1,
     "sub-modules have moved in {seconds} s ({reason}); requests stood still for {stopped_s} s"},
    {"epoch", 1,
     "epoch {epoch}: this device computes sub-modules [{computes}]"},
    {"dropped", 2,
     "the change to epoch {epoch} is given up: {reason}"},
    {"request-ended", 1,
     "request {request} ended ({finish}) after {tokens} tokens and {seconds} s"},
    {"request-failed", 2,
     "request {request} failed after {tokens} tokens and {seconds} s: {reason}"},
    {"request-refused", 2,
     "a request is refused ({cause})"},
}};

}  // namespace partc
