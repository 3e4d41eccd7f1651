// A set of cases for std::visit: all kinds of a variant must be among them, or it does not compile.
#pragma once

#include <concepts>
#include <type_traits>

namespace partc {

/// A set of cases.
template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;  // which newer compilers deduce themselves

/// Kinds that a case handles alike.
template <class Kind, class... Kinds>
concept OneOf = (std::same_as<std::remove_cvref_t<Kind>, Kinds> || ...);

}  // namespace partc
