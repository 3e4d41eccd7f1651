/** Memory of engines: zeros in pages of their own. */
#pragma once

#include <cstddef>
#include <cstdint>

namespace partc::engines {

/** Bytes that compiled code expects the address of a tensor to be a multiple of: a cache line. */
inline constexpr std::uint64_t kAlignment = 64;

/** Bytes of a large page, where a processor's small ones have 4 KiB. */
inline constexpr std::uint64_t kLargePage = 2 << 20;

inline std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/** Zeros at an aligned address; pages that nobody has written to take no memory. */
class Pages {
 public:
  enum class Size { small, large };

  Pages() = default;
  /** Large pages are asked for, and used where the system has them. Throws a run error: there is no memory. */
  explicit Pages(std::uint64_t bytes, Size size = Size::small);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  /** Zeros again; what was written to takes no memory any more. */
  void clear();
  /** Let large pages, a multiple of their size, be at another address, in the place of what was there; then these are
  none. False: that failed, and nothing may be there. */
  bool move_to(std::byte* place);

 private:
  void* mapping_ = nullptr;
  std::uint64_t mapped_ = 0;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace partc::engines
