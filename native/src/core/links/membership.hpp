// Whether the ring stands, as one device sees it; the table of states is in partc/runtime/core/links/membership.py.
#pragma once

#include <string>

#include "core/actions.hpp"

namespace partc::core {

class Membership {
 public:
  enum class State { loading, joining, complete, degraded };

  Membership(RolePtr of_role, std::uint64_t of_incarnation) : role(std::move(of_role)), incarnation(of_incarnation) {}

  RolePtr role;
  const std::uint64_t incarnation;
  State state = State::loading;
  /// Devices that are ready → where messages to them go; at the source.
  Map<std::string, Origin> joined;

  /// Whether the ring ever stood.
  bool was_complete() const { return is_announced_; }
  /// The engine has loaded all sub-modules.
  void loaded() { state = State::joining; }
  /// A device is ready, with all its links.
  void ready(const std::string& device, const Origin& origin) { joined.set(device, origin); }
  /// A connection to or from a device is closed, or the device is not ready any more.
  void left(const std::string& device, const Origin& origin);
  /// Another placement is in force, and these devices are ready for it.
  void adopt(RolePtr of_role, const Map<std::string, Origin>& ready);
  /// Devices that are not in the ring yet, where no link stands to those `missing`; at the source.
  Names absent(const Names& missing) const;
  /// Find out whether the ring stands now, and tell of it.
  void look(const Names& missing, std::uint64_t next_request, Actions& out);

 private:
  bool is_announced_ = false;
};

}  // namespace partc::core
