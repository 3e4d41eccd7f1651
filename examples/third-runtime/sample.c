// The choice of a token: a pure function of logits, sampling, seed, row and position (wire.md, "The draw of a token").
#include <math.h>
#include <stdlib.h>

#include "ring.h"

static const float* compared;  // by `by_likelihood`

static int by_likelihood(const void* one,
                         const void* other) {  // the likeliest first; equal ones by their ids; NaN last
  const int64_t a = *(const int64_t*)one, b = *(const int64_t*)other;
  const float x = isnan(compared[a]) ? -INFINITY : compared[a], y = isnan(compared[b]) ? -INFINITY : compared[b];
  return x != y ? (x < y ? 1 : -1) : a < b ? -1 : 1;
}

// The first number of Philox4x64-10 with the key (seed, row) and the counter (1, 0, 0, position), in [0, 1).
static double uniform(uint64_t seed, uint64_t row, uint64_t position) {
  uint64_t c[4] = {1, 0, 0, position}, key[2] = {seed, row};
  for (int round = 0; round < 10; ++round) {
    const unsigned __int128 one = (unsigned __int128)c[0] * 0xD2E7470EE14C6C93u,
                            two = (unsigned __int128)c[2] * 0xCA5A826395121157u;
    const uint64_t next[4] = {(uint64_t)(two >> 64) ^ c[1] ^ key[0], (uint64_t)two,
                              (uint64_t)(one >> 64) ^ c[3] ^ key[1], (uint64_t)one};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    key[0] += 0x9E3779B97F4A7C15u, key[1] += 0xBB67AE8584CAA73Bu;
  }
  return (double)(c[0] >> 11) * 0x1p-53;
}

// The drawn token, then the likeliest, with the logarithms of their probabilities; `count` in all.
static void tell_likely(const float* logits, const int64_t* order, int64_t token, int64_t count, json_t* likely) {
  double sum = 0;
  for (int64_t i = 0; i < limit("vocab_size"); ++i) sum += exp((double)logits[i] - (double)logits[order[0]]);
  for (int64_t i = 0; i < count && i <= limit("vocab_size"); ++i) {
    const int64_t id = i ? order[i - 1] : token;
    json_array_append_new(likely, json_pack("[If]", id,
                                            (double)(float)((double)logits[id] - (double)logits[order[0]] - log(sum))));
  }
}

int64_t draw(const float* logits, const json_t* sampling, uint64_t row, uint64_t position, json_t* likely) {
  const size_t vocabulary = (size_t)limit("vocab_size"), top_k = (size_t)num(sampling, "top_k");
  const double temperature = json_number_value(sub(sampling, "temperature"));
  const json_t* top_p = sub(sampling, "top_p");
  int64_t *order = malloc(vocabulary * sizeof *order), token;
  double *sums = malloc(vocabulary * sizeof *sums), sum = 0;
  size_t kept = top_k && top_k < vocabulary ? top_k : vocabulary, i = 0;
  for (size_t k = 0; k < vocabulary; ++k) order[k] = (int64_t)k;
  compared = logits;
  qsort(order, vocabulary, sizeof *order, by_likelihood);
  token = order[0];
  if (temperature > 0) {
    for (size_t k = 0; k < kept; ++k)
      sums[k] = sum += exp(((double)logits[order[k]] - (double)logits[order[0]]) / temperature);
    if (top_p && json_number_value(top_p) < 1) {
      while (i + 1 < kept && sums[i] < json_number_value(top_p) * sum) ++i;
      kept = i + 1;
    }
    const double drawn = uniform((uint64_t)num(sampling, "seed"), row, position) * sums[kept - 1];
    for (i = 0; i + 1 < kept && sums[i] <= drawn;) ++i;
    token = order[i];
  }
  if (num(sampling, "likely") > 0) tell_likely(logits, order, token, num(sampling, "likely"), likely);
  free(order), free(sums);
  return token;
}
