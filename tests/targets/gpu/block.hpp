// A block of CUDA's threads on a processor, a thread of the host each: as much of the language as TVM writes for
// products, and the instructions of tensor cores as their manual states them (PTX ISA, mma.m16n8k16).

#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#define __global__
#define __restrict__
#define __shared__ static
#define __launch_bounds__(threads)
#define alignas(bytes)  // which CUDA takes behind `__shared__`

using uint = unsigned;
struct Place {
  int x, y, z;
};
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct uint4 { uint x, y, z, w; };
struct float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint4 make_uint4(uint x, uint y, uint z, uint w) { return {x, y, z, w}; }
using std::max;
using std::min;

inline thread_local Place threadIdx, blockIdx;
constexpr int WARP = 32;

struct Warp {
  std::barrier<> together{WARP};
  uint w[WARP][4], x[WARP][2];
};
inline std::unique_ptr<std::barrier<>> everyone;
inline std::vector<std::unique_ptr<Warp>> warps;

inline void __syncthreads() { everyone->arrive_and_wait(); }

inline float low(uint pair) {
  uint bits = pair << 16;
  float number;
  std::memcpy(&number, &bits, 4);
  return number;
}
inline float high(uint pair) { return low(pair >> 16); }

// The number of row r and column c of w [16, 16], which a lane holds as pairs of neighbouring columns.
inline float of_w(const Warp& warp, int r, int c) {
  uint pair = warp.w[r % 8 * 4 + c % 8 / 2][r / 8 + c / 8 * 2];
  return c % 2 ? high(pair) : low(pair);
}
// The number of row r and column c of x [16, 8], which a lane holds as pairs of neighbouring rows.
inline float of_x(const Warp& warp, int r, int c) {
  uint pair = warp.x[c * 4 + r % 8 / 2][r / 8];
  return r % 2 ? high(pair) : low(pair);
}

inline void partc_multiply(float* sums, const uint* w, const uint* x) {
  int lane = threadIdx.x;
  Warp& warp = *warps[threadIdx.y];
  std::memcpy(warp.w[lane], w, 16);
  std::memcpy(warp.x[lane], x, 8);
  warp.together.arrive_and_wait();
  for (int c = 0; c < 4; ++c) {
    double sum = sums[c];
    for (int k = 0; k < 16; ++k)
      sum += double(of_w(warp, lane / 4 + c / 2 * 8, k)) * of_x(warp, k, lane % 4 * 2 + c % 2);
    sums[c] = float(sum);
  }
  warp.together.arrive_and_wait();
}
inline void partc_multiply_first(float* sums, const uint* w, const uint* x) {
  for (int c = 0; c < 4; ++c) sums[c] = 0;
  partc_multiply(sums, w, x);
}
inline uint partc_weights_of_4_bits(uint pair) {  // exact, so that cutting off is no rounding
  float numbers[2] = {low(pair | 0x43004300u) - 136, high(pair | 0x43004300u) - 136};
  uint bits[2];
  std::memcpy(bits, numbers, 8);
  return bits[0] >> 16 | (bits[1] & 0xFFFF0000u);
}

inline void launch(Place grid, Place block, const std::function<void()>& kernel) {
  int count = block.x * block.y * block.z;
  everyone = std::make_unique<std::barrier<>>(count);
  warps.clear();
  for (int i = 0; i < block.y; ++i) warps.push_back(std::make_unique<Warp>());
  auto blocks = [&](Place thread) {
    threadIdx = thread;
    for (int y = 0; y < grid.y; ++y)
      for (int x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, 0};
        kernel();
        __syncthreads();  // memory that a block shares is that of the next one, too
      }
  };
  std::vector<std::thread> threads;
  for (int y = 0; y < block.y; ++y)
    for (int x = 0; x < block.x; ++x) threads.emplace_back(blocks, Place{x, y, 0});
  for (auto& thread : threads) thread.join();
}
