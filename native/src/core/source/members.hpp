// The devices that are connected to the source: their lives, and whether they know the placement in force
// (…/core/source/members.py).
#pragma once

#include <optional>
#include <set>
#include <string>

#include "core/actions.hpp"

namespace partc::core {

/// A device that is connected, and the placement that it runs.
struct Member {
  std::uint64_t incarnation = 0;
  std::uint64_t epoch = 0;
  Bytes placement;
};

/// All devices that are connected.
class Members {
 public:
  explicit Members(RolePtr role) : role_(std::move(role)) {}

  /// A device is connected, or the source itself has loaded.
  void came(const std::string& device, const Member& member);
  /// The connection of a device is closed.
  void gone(const std::string& device);
  /// These devices do not answer.
  void suspect(const Names& silent) { suspects_.insert(silent.begin(), silent.end()); }
  /// A device gives a sign of life; whether it was missed.
  bool answered(const std::string& device) { return suspects_.erase(device) > 0; }
  /// All devices of the ring are there, and know the placement in force.
  void stand();
  /// Another placement is in force, for these devices in these incarnations.
  void adopt(RolePtr role, const Map<std::string, std::uint64_t>& asked);

  bool is_connected(const std::string& device) const { return members_.contains(device); }
  /// Whether a device is connected, and answers; in a certain life.
  bool is_present(const std::string& device) const;
  bool is_there(const std::string& device, std::uint64_t incarnation) const;
  /// The devices that are present.
  Names present() const;
  /// Whether a device does not answer.
  bool any_suspect() const { return !suspects_.empty(); }
  /// Whether the ring has ever stood.
  bool ever_stood() const { return !lives_.empty(); }
  /// The incarnation of a device that is connected.
  std::uint64_t life(const std::string& device) const { return members_.at(device).incarnation; }
  /// Whether a device that connects is in the ring, and has been since the placement came into force.
  bool remembers(const std::string& device, std::uint64_t incarnation) const;
  /// Whether a device runs the placement in force; a former life of the source may have given out its epoch.
  bool runs_it(const std::string& device) const;
  /// Whether a device that is present does not know the placement in force, or lost what it had in it.
  bool has_forgotten(const std::string& device) const;
  /// The devices of the ring that are not present; that are, and have forgotten what they had.
  Names missing() const;
  Names forgetful() const;
  /// Those that were not lost before, or were back since.
  Names newly_lost(const Names& missing, const Names& forgetful);

 private:
  /// The role of the source in the placement in force.
  RolePtr role_;
  Map<std::string, Member> members_;
  /// Device of the ring → its incarnation when the placement came into force.
  Map<std::string, std::uint64_t> lives_;
  /// Devices that are connected and do not answer.
  std::set<std::string> suspects_;
  /// Device that was lost since → the incarnation in which it is back, if it is: nothing is told of a loss twice.
  Map<std::string, std::optional<std::uint64_t>> losses_;
};

}  // namespace partc::core
