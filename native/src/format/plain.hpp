// The types of fields in the generated structs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "format/map.hpp"
#include "format/value.hpp"

namespace partc {

/// Size of an axis: a number, or an expression of symbols (format/dims.hpp).
using Size = std::variant<std::uint64_t, std::string>;

/// A fact about a device in `welcome`.
using Fact = std::variant<bool, Integer, double, std::string>;

/// Symbol → size.
using Dims = Map<std::string, std::uint64_t>;

}  // namespace partc
