// Events: all that can happen to a device (partc/runtime/core/events.py).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "errors.hpp"
#include "format/match.hpp"
#include "format/messages.gen.hpp"
#include "format/tensor.hpp"

namespace partc::core {

/// The other end of a connection: the device that this one connected to, or the route of a connection to this one.
struct Origin {
  std::string name;
  bool is_route = false;
  auto operator<=>(const Origin&) const = default;
};

/// The engine has loaded all sub-modules that the placement in force needs, or the one of a `Load`.
struct Loaded {
  std::uint64_t epoch = 0;
};
/// The failure of a `Load`.
struct LoadFailed {
  std::uint64_t epoch = 0;
  Error error;
};
/// The result of a `ReadRows`, [rows, heads, d]; they come in the order of the commands.
struct RowsRead {
  Tensor rows;
};
/// A connection that this device opened stands.
struct Connected {
  std::string peer;
  /// HOST:PORT at which this device can be reached from there; empty: as the placement says.
  std::string address;
};
/// A connection is closed; one that this device opened will be tried again.
struct Disconnected {
  Origin origin;
};
/// This device and a peer do not have each other's keys.
struct Rejected {
  std::string peer;
};
/// A message arrived.
struct Received {
  Origin origin;
  /// The name that the key of the connection belongs to; none without keys.
  std::optional<std::string> user;
  messages::AnyMessage message;
  Frames frames;
};
/// A message arrived whose header cannot be read.
struct Unreadable {
  Origin origin;
  Error error;
};
/// The result of a `Compute` or a `Draw`, and the time that it took.
struct Computed {
  std::vector<Tensor> values;
  double seconds = 0.0;
};
/// The failure of a `Compute` or a `Draw`.
struct ComputeFailed {
  Error error;
};
/// The result of a `ReadSensors`.
struct SensorsRead {
  messages::Readings readings;
};
/// The time that `Device::deadline` named has come.
struct Tick {};

using Event = std::variant<Loaded, LoadFailed, RowsRead, Connected, Disconnected, Rejected, Received, Unreadable,
                           Computed, ComputeFailed, SensorsRead, Tick>;

}  // namespace partc::core

template <>
struct std::hash<partc::core::Origin> {
  std::size_t operator()(const partc::core::Origin& origin) const {
    return std::hash<std::string>{}(origin.name) * 2 + origin.is_route;
  }
};
