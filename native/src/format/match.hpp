// Matching of variants by kind, as Python's `match` with `assert_never`: what is visited with a `Match` of named kinds
// does not compile once the variant has a kind more.
#pragma once

#include <concepts>
#include <type_traits>

namespace partc {

/// A set of cases for std::visit.
template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;  // which newer compilers deduce themselves

/// One of several kinds, which one case handles alike: `[](const OneOf<Hello, Welcome> auto&) {}`.
template <class T, class... Kinds>
concept OneOf = (std::same_as<std::remove_cvref_t<T>, Kinds> || ...);

}  // namespace partc
