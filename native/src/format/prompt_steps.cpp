#include "format/prompt_steps.hpp"

#include <algorithm>

namespace partc {
namespace {

struct Steps {
  std::uint64_t cost = 0;
  std::vector<std::uint64_t> rows;
};

Steps cheapest(std::uint64_t width, const StepSizes& sizes) {
  if (width == 0) return {};
  const auto larger = std::ranges::upper_bound(sizes, width, {}, &StepSizes::value_type::first);
  if (larger == sizes.begin()) return {larger->second, {width}};
  const auto& [rows, cost] = *std::prev(larger);
  Steps left = cheapest(width % rows, sizes), exact{width / rows * cost + left.cost, {}};
  if (larger != sizes.end() && larger->second <= exact.cost) return {larger->second, {width}};
  exact.rows.assign(width / rows, rows);
  exact.rows.insert(exact.rows.end(), left.rows.begin(), left.rows.end());
  return exact;
}

}  // namespace

std::vector<std::uint64_t> steps_of(std::uint64_t width, const StepSizes& sizes) { return cheapest(width, sizes).rows; }

std::uint64_t most_steps(std::uint64_t width, const StepSizes& sizes) {
  std::uint64_t most = 1 + width / sizes.back().first;
  for (std::size_t at = 1; at < sizes.size(); ++at)
    most += (sizes[at].first + sizes[at - 1].first - 1) / sizes[at - 1].first;
  return most;
}

}  // namespace partc
