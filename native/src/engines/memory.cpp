#include "engines/memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "errors.hpp"

namespace partc::engines {

/** Every token reads weights from end to end, and the processor's prefetching ends with each page. */
Pages::Pages(std::uint64_t bytes, Size size) : bytes_(bytes) {
  const bool is_large = size == Size::large && bytes >= kLargePage;
  mapped_ = bytes + (is_large ? kLargePage : bytes == 0);
  void* pages = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    throw run_error("there is not enough memory for " + std::to_string(bytes) + " bytes: " + std::strerror(errno), "",
                    "end other programs, or give this device fewer sub-modules");
  }
  mapping_ = pages;
  data_ = static_cast<std::byte*>(pages);
  if (!is_large) return;
  madvise(pages, mapped_, MADV_HUGEPAGE);  // where there are none, small ones do
  data_ += (kLargePage - reinterpret_cast<std::uintptr_t>(pages) % kLargePage) % kLargePage;
}

Pages::Pages(Pages&& other) noexcept { *this = std::move(other); }

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Pages::~Pages() {
  if (mapping_) munmap(mapping_, mapped_);
}

bool Pages::move_to(std::byte* place) {
  if (mremap(data_, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED) return false;
  std::byte* const first = static_cast<std::byte*>(mapping_);
  const std::uint64_t before = static_cast<std::uint64_t>(data_ - first);
  if (before) munmap(first, before);
  if (before + bytes_ < mapped_) munmap(data_ + bytes_, mapped_ - before - bytes_);
  mapping_ = nullptr;  // nothing of it is left to unmap
  data_ = nullptr;
  mapped_ = bytes_ = 0;
  return true;
}

void Pages::clear() {
  if (madvise(mapping_, mapped_, MADV_DONTNEED)) std::memset(data_, 0, bytes_);
}

}  // namespace partc::engines
