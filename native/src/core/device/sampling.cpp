#include "core/device/sampling.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

namespace partc::core {
namespace {

float from_half(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16, exponent = bits >> 10 & 31u, fraction = bits & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float size = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -size : size;
}

using Row = std::span<const float>;

/// The numbers of one row as float32; `store` keeps them where the logits are held in another type.
Row row_of(const Tensor& logits, std::size_t row, std::size_t size, std::vector<float>& store) {
  const std::string_view type = logits.type->name;
  if (type == "float32") return logits.elements<float>().subspan(row * size, size);
  store.clear();
  store.reserve(size);
  const auto convert = [&](const auto elements, auto to_float) {
    for (const auto element : elements.subspan(row * size, size)) store.push_back(to_float(element));
  };
  if (type == "bfloat16") {
    convert(logits.elements<std::uint16_t>(),
            [](std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); });
  } else if (type == "float16") {
    convert(logits.elements<std::uint16_t>(), from_half);
  } else {
    convert(logits.elements<double>(), [](double number) { return static_cast<float>(number); });
  }
  return store;
}

/// The first of the largest numbers, or the first that is NaN; in lanes, since a shared step has a row for each request.
std::int64_t greedy(Row logits) {
  constexpr std::size_t LANES = 16;
  std::array<float, LANES> most;
  most.fill(-std::numeric_limits<float>::infinity());
  std::array<std::uint32_t, LANES> is_nan{};
  const auto look = [&](std::size_t lane, float logit) {
    most[lane] = logit > most[lane] ? logit : most[lane];
    is_nan[lane] |= logit != logit;
  };
  std::size_t at = 0;
  for (; at + LANES <= logits.size(); at += LANES) {
    for (std::size_t lane = 0; lane < LANES; ++lane) look(lane, logits[at + lane]);
  }
  for (; at < logits.size(); ++at) look(0, logits[at]);
  const bool any_nan = std::ranges::any_of(is_nan, [](std::uint32_t found) { return found != 0; });
  const float top = std::ranges::max(most);
  const auto first =
      std::ranges::find_if(logits, [&](float logit) { return any_nan ? std::isnan(logit) : logit == top; });
  return first - logits.begin();
}

using Order = std::vector<std::uint32_t>;

/// The tokens from the most likely one on, as many as are asked for; equal ones by their id, NaN last.
Order most_likely(Row logits, std::size_t count) {
  Order order(logits.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(count, order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](std::uint32_t one, std::uint32_t other) {
    if (std::isnan(logits[one]) != std::isnan(logits[other])) return std::isnan(logits[other]);
    if (logits[one] != logits[other] && !std::isnan(logits[one])) return logits[one] > logits[other];
    return one < other;
  });
  order.erase(end, order.end());
  return order;
}

/// All tokens in that order: sorted by eleven bits of their numbers at a time, the last ones first.
Order by_likelihood(Row logits) {
  constexpr std::uint32_t BITS = 11, DIGITS = 1u << BITS, SIGN = 1u << 31;
  struct Item {
    std::uint32_t key, token;
  };
  std::vector<Item> items, sorted(logits.size());
  items.reserve(logits.size());
  for (const float logit : logits) {
    const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // -0 is 0
    const std::uint32_t key = (bits & SIGN) != 0 ? bits : ~bits & ~SIGN;
    items.push_back({std::isnan(logit) ? ~0u : key, static_cast<std::uint32_t>(items.size())});
  }
  for (std::uint32_t shift = 0; shift < 32; shift += BITS) {
    std::array<std::uint32_t, DIGITS + 1> begins{};
    for (const Item& item : items) ++begins[(item.key >> shift) % DIGITS + 1];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    for (const Item& item : items) sorted[begins[(item.key >> shift) % DIGITS]++] = item;
    std::swap(items, sorted);
  }
  Order order;
  order.reserve(items.size());
  for (const Item& item : items) order.push_back(item.token);
  return order;
}

/// Adds the ids and the logarithms of one row.
void add_likely(Row logits, std::int64_t token, std::uint64_t count, std::vector<std::int64_t>& ids,
                std::vector<double>& told) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0.0;
  for (const float logit : logits) {
    top =
        std::isnan(logit) || std::isnan(top) ? std::numeric_limits<double>::quiet_NaN() : std::max<double>(top, logit);
  }
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  const double least = std::log(sum);
  std::vector<std::int64_t> row{token};
  for (const std::uint32_t at : most_likely(logits, count - 1)) row.push_back(at);
  for (const std::int64_t id : row) {
    ids.push_back(id);
    const double wide = static_cast<double>(logits[static_cast<std::size_t>(id)]) - top - least;
    told.push_back(static_cast<double>(static_cast<float>(wide)));
  }
}

/// The first kept token of a row whose running sum passes a draw; O(vocabulary), with top-k O(vocabulary log k).
std::int64_t pick(Row logits, const messages::Sampling& sampling, std::uint64_t row, std::uint64_t position) {
  // A few are found sooner than all are sorted.
  const bool are_few = sampling.top_k != 0 && sampling.top_k < logits.size() / 16;
  Order order = are_few ? most_likely(logits, sampling.top_k) : by_likelihood(logits);
  if (sampling.top_k != 0 && sampling.top_k < order.size()) order.resize(sampling.top_k);
  const double top = logits[order.front()];
  std::vector<double> sums;
  sums.reserve(order.size());
  double sum = 0.0;
  for (const std::uint32_t at : order) {
    sum += std::exp((static_cast<double>(logits[at]) - top) / sampling.temperature);
    sums.push_back(sum);
  }
  if (sampling.top_p < 1.0) {
    const auto last = std::lower_bound(sums.begin(), sums.end(), sampling.top_p * sums.back());
    const auto kept = static_cast<std::size_t>(last - sums.begin()) + 1;
    sums.resize(std::min(kept, sums.size()));
  }
  const auto found = std::upper_bound(sums.begin(), sums.end(), uniform(sampling.seed, row, position) * sums.back());
  const auto index = static_cast<std::size_t>(found - sums.begin());
  return order[std::min(index, sums.size() - 1)];
}

/// The next token of every row, int64[batch].
Tensor sample(const Draw& draw) {
  const std::size_t rows = draw.logits.shape.front(), size = draw.logits.shape.back();
  const bool is_shared = !draw.others.empty();
  std::vector<std::int64_t> tokens;
  std::vector<float> store;
  for (std::size_t row = 0; row < rows; ++row) {
    const Row numbers = row_of(draw.logits, row, size, store);
    const messages::Sampling& sampling = is_shared && row != 0 ? draw.others.at(row - 1) : draw.sampling;
    tokens.push_back(sampling.temperature == 0.0
                         ? greedy(numbers)
                         : pick(numbers, sampling, is_shared ? 0 : row, draw.positions.at(row)));
  }
  return Tensor::int64({rows}, tokens);
}

}  // namespace

std::vector<Tensor> drawn(const Draw& draw) {
  std::vector<Tensor> found{sample(draw)};
  const std::size_t rows = draw.logits.shape.front(), size = draw.logits.shape.back();
  std::vector<std::uint64_t> wanted(rows, draw.sampling.likely);
  for (std::size_t row = 1; !draw.others.empty() && row < rows; ++row) wanted[row] = draw.others.at(row - 1).likely;
  const std::uint64_t most = std::min<std::uint64_t>(std::ranges::max(wanted), size + 1);
  if (most == 0) return found;
  const std::span<const std::int64_t> tokens = found.front().elements<std::int64_t>();
  std::vector<std::int64_t> ids;
  std::vector<double> told;
  std::vector<float> store;
  for (std::size_t row = 0; row < rows; ++row) {
    if (wanted[row] != 0) add_likely(row_of(draw.logits, row, size, store), tokens[row], wanted[row], ids, told);
    ids.resize((row + 1) * most);
    told.resize((row + 1) * most);
  }
  const Shape shape{rows, most};
  const std::string_view bytes(reinterpret_cast<const char*>(told.data()), told.size() * sizeof(double));
  found.push_back(Tensor::int64(shape, ids));
  found.push_back({element_type("float64"), shape, Frame::copy(bytes)});
  return found;
}

double uniform(std::uint64_t seed, std::uint64_t row, std::uint64_t position) {
  __extension__ typedef unsigned __int128 Wide;
  std::array<std::uint64_t, 4> counter{1, 0, 0, position};  // numpy counts up before its first block
  std::array<std::uint64_t, 2> key{seed, row};
  for (int round = 0; round < 10; ++round) {
    const Wide first = Wide{0xD2E7470EE14C6C93ull} * counter[0], second = Wide{0xCA5A826395121157ull} * counter[2];
    counter = {static_cast<std::uint64_t>(second >> 64) ^ counter[1] ^ key[0], static_cast<std::uint64_t>(second),
               static_cast<std::uint64_t>(first >> 64) ^ counter[3] ^ key[1], static_cast<std::uint64_t>(first)};
    key[0] += 0x9E3779B97F4A7C15ull;
    key[1] += 0xBB67AE8584CAA73Bull;
  }
  return static_cast<double>(counter[0] >> 11) * (1.0 / 9007199254740992.0);
}

}  // namespace partc::core
