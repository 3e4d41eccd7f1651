// Written by `python -m partc.format.native native/src/format`: change the Python structs, not this file.

#pragma once

#include "format/plain.hpp"

namespace partc::placement {

/// Consecutive sub-modules, and the devices that compute them.
struct Stage {
  std::pair<std::uint64_t, std::uint64_t> submodules{};
  std::vector<std::string> devices{};
  std::string share = "one";
  bool operator==(const Stage&) const = default;
};

/// placement.json.
struct Placement {
  std::string format = "partc-placement/2";
  std::string placement_id{};
  std::string plan_id{};
  std::uint64_t epoch = 0;
  std::string source{};
  std::vector<std::string> ring{};
  Map<std::string, std::vector<Stage>> stages{};
  Map<std::string, Map<std::string, std::string>> programs{};
  Map<std::string, std::optional<std::string>> addresses{};
  Map<std::string, double> predicted{};
  Map<std::string, std::string> mirrors{};
  bool operator==(const Placement&) const = default;
};

/// Throws Error: the data are no Placement.
Placement read_placement(const Value& value);
Value write_placement(const Placement& item);

}  // namespace partc::placement
