// The times of a step on one device, and the table of them that a client gets (partc/runtime/core/device/timings.py).
#pragma once

#include <string>
#include <vector>

#include "format/map.hpp"
#include "format/tensor.hpp"

namespace partc::core {

/// The times of one step on this device, seconds.
struct Timing {
  std::uint64_t request = 0;
  /// The number of its token, from 0; the parts of a prompt have the same.
  std::uint64_t step = 0;
  double started_s = 0.0, compute_s = 0.0;
  /// Ready, but another request was being computed.
  double queue_s = 0.0;
  std::uint64_t sent_bytes = 0, received_bytes = 0;
  /// Peer → seconds in which this request could only wait for its message.
  Map<std::string, double> wait_s;
  /// Epoch of the placement under which it ran; of its last part, where these had several.
  std::uint64_t epoch = 0;

  /// Count a later part of the same step as well.
  void add(const Timing& later);
};

/// The timings of the tokens that one step computed: all of it is the first one's, and the others came with that.
std::vector<Timing> by_token(const Timing& timing, std::uint64_t count);
/// The timings of one request, those of the parts of its prompt as one.
std::vector<Timing> whole_steps(const std::vector<Timing>& timings);

/// Names of columns, and a float64 table of steps × columns.
struct TimingTable {
  std::vector<std::string> columns;
  Tensor table;
};
TimingTable timing_table(const std::vector<Timing>& timings);

}  // namespace partc::core
