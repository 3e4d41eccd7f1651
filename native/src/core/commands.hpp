// Commands: all that a device asks of the shell around it (partc/runtime/core/commands.py).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/events.hpp"
#include "errors.hpp"
#include "format/value.hpp"

namespace partc::core {

using Names = std::vector<std::string>;
using Counts = std::vector<std::uint64_t>;

/// Queue a message without waiting. Where no connection stands it is lost: links repeat what matters.
struct Send {
  Origin origin;
  messages::AnyMessage message;
  Frames frames;
};
/// Run a sub-module, and answer with `Computed` or `ComputeFailed`. At most one is under way.
struct Compute {
  std::string submodule;
  std::uint64_t slot = 0;
  std::vector<Tensor> inputs;
  Dims dims;
  /// Whether the states of the slot begin anew before, for sizes `dims`.
  bool resets = false;
  /// The slots of the rows behind that of `slot`, where these are steps of their own: those of the other requests of a
  /// shared step, or the same slot again for tokens that follow one another.
  Counts others{};
};
/// Sample tokens from logits, and answer as for `Compute`; counts as computing.
struct Draw {
  /// (batch, 1, vocabulary)
  Tensor logits;
  messages::Sampling sampling;
  /// (batch,) index in its sequence that each new token will have.
  Counts positions;
  /// How to choose in the rows behind the first, where these are steps of their own: each is drawn as that alone.
  std::vector<messages::Sampling> others{};
};
/// Load sub-modules while the device goes on working, and answer with `Loaded` or `LoadFailed`.
struct Load {
  std::uint64_t epoch = 0;
  Names submodules;
};
/// Give back the memory of sub-modules, once the `Compute` under way is over.
struct Release {
  Names submodules;
};
/// The states of a slot begin anew, for sizes `dims`: rows are about to be written.
struct Reset {
  std::uint64_t slot = 0;
  Dims dims;
};
/// Copy rows of a state, in the order of all commands, and answer with `RowsRead`.
struct ReadRows {
  std::string submodule;
  std::uint64_t slot = 0;
  std::string state;
  /// Number of the sequence in the request, from 0.
  std::uint64_t row = 0, begin = 0, end = 0;
};
/// Write rows of a state, [rows, heads, d], in the order of all commands.
struct WriteRows {
  std::string submodule;
  std::uint64_t slot = 0;
  std::string state;
  std::uint64_t row = 0, begin = 0;
  Tensor rows;
};
/// Connect to a device, or to where it is now, and again after every break. Address empty: as it was given at start.
struct Connect {
  std::string peer, address;
};
/// Read the sensors as soon as that delays nothing, and answer with `SensorsRead`.
struct ReadSensors {};
/// Tell whoever started this process that the ring stands (the source), or this device's part of it.
struct Announce {};
/// Write a line of the log: an event of `format/logs.gen.hpp`, which has its fields as well.
struct Log {
  std::string_view event;
  Object fields;
};
/// End the process: it was asked to (no error), or it cannot be part of this ring.
struct Leave {
  std::optional<Error> error;
};

using Command = std::variant<Send, Compute, Draw, Load, Release, Reset, ReadRows, WriteRows, Connect, ReadSensors,
                             Announce, Log, Leave>;

}  // namespace partc::core
