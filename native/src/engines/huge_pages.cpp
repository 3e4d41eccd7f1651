#include "engines/huge_pages.hpp"

#include <cstdlib>

#if defined(__GLIBC__)
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

namespace partc::engines {
namespace {

constexpr int kLargest = 32 << 20;    // from how many bytes on a block gets a mapping of its own; glibc's most
constexpr int kMostMappings = 65536;  // the default of glibc

/** Make the heap larger by pages that are to be large ones. */
void advise(std::uint64_t bytes) {
  void* const block = std::malloc(bytes);
  if (!block) return;
  const std::uint64_t page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t skip = -reinterpret_cast<std::uintptr_t>(block) % page;
  if (skip < bytes) madvise(static_cast<char*>(block) + skip, bytes - skip, MADV_HUGEPAGE);
  std::free(block);
}

}  // namespace

InHugePages::InHugePages(std::uint64_t bytes) {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // what is free at the end of the heap stays there
  advise(bytes);
}

InHugePages::~InHugePages() {
  mallopt(M_MMAP_MAX, kMostMappings);
  mallopt(M_MMAP_THRESHOLD, kLargest);
  mallopt(M_TRIM_THRESHOLD, 2 * kLargest);  // as glibc would set it itself; else every step gave memory back
}

void share_heap() { mallopt(M_ARENA_MAX, 1); }

void give_back() { malloc_trim(0); }

}  // namespace partc::engines

#else

namespace partc::engines {

InHugePages::InHugePages(std::uint64_t) {}
InHugePages::~InHugePages() {}
void share_heap() {}
void give_back() {}

}  // namespace partc::engines

#endif
