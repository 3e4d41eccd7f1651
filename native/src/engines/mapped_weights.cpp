#include "engines/mapped_weights.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "engines/memory.hpp"

namespace partc::engines {
namespace {

constexpr std::uint64_t kLargePage = 2 << 20;
constexpr std::uint64_t kMostBytes = 16 << 20;  // of a piece: Linux counts those that are mapped

/** Whether Linux gives large pages to who asks for them. */
bool has_large_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::stringstream text;
  text << file.rdbuf();
  return !text.str().empty() && text.str().find("[never]") == std::string::npos;
}

/** Memory that begins with a large page, of a multiple of their size; null: there is none. */
void* large_pages(std::uint64_t bytes) {
  const std::uint64_t taken = bytes + kLargePage;
  void* const pages = mmap(nullptr, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  const std::uint64_t before = -reinterpret_cast<std::uintptr_t>(pages) % kLargePage;
  std::byte* const first = static_cast<std::byte*>(pages) + before;
  if (before) munmap(pages, before);
  munmap(first + bytes, kLargePage - before);
  madvise(first, bytes, MADV_HUGEPAGE);
  return first;
}

}  // namespace

/** Pieces begin at the addresses of large pages; what lies before the first of these, or behind the last, stays. */
MappedWeights::MappedWeights(const std::string& path, const std::vector<safetensors::Entry>& entries)
    : file_(path), mapping_(file_) {
  static const bool is_faster = has_large_pages();
  if (!is_faster) return;
  const auto is_read = [&](std::uint64_t begin) {
    return std::ranges::any_of(entries, [&](const safetensors::Entry& entry) {
      return entry.offset < begin + kLargePage && begin < entry.offset + entry.bytes;
    });
  };
  std::uint64_t begin = -reinterpret_cast<std::uintptr_t>(mapping_.data()) % kLargePage;
  for (; begin + kLargePage <= mapping_.size(); begin += kLargePage) {
    if (!is_read(begin)) continue;
    const bool goes_on = !pieces_.empty() && pieces_.back().offset + pieces_.back().bytes == begin;
    if (!goes_on || pieces_.back().bytes == kMostBytes) pieces_.push_back({begin, 0});
    pieces_.back().bytes += kLargePage;
  }
}

/** Whoever reads there meanwhile reads the file or its copy: Linux changes the one for the other in one call. */
bool MappedWeights::settle() {
  if (pieces_.empty()) return false;
  const Piece piece = pieces_.front();
  pieces_.pop_front();
  void* const copy = large_pages(piece.bytes);
  if (copy) {
    file_.read(piece.offset, {static_cast<std::byte*>(copy), piece.bytes});
    const void* const placed = mremap(copy, piece.bytes, piece.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at(piece.offset));
    if (placed != MAP_FAILED) return true;
    munmap(copy, piece.bytes);
  }
  pieces_.clear();  // the file's own pages do as well
  return false;
}

std::vector<std::shared_ptr<std::byte>> WeightMappings::map(const std::string& path,
                                                            const std::vector<safetensors::Entry>& entries) {
  const auto weights = std::make_shared<MappedWeights>(path, entries);
  std::vector<std::shared_ptr<std::byte>> tensors;
  for (const safetensors::Entry& entry : entries) {
    if (entry.offset % kAlignment == 0) {
      tensors.emplace_back(weights, weights->at(entry.offset));
      continue;
    }
    const auto copy = std::make_shared<Pages>(entry.bytes, Pages::Size::large);
    weights->file().read(entry.offset, {copy->data(), entry.bytes});
    tensors.emplace_back(copy, copy->data());
  }
  unsettled_.push_back(weights);
  return tensors;
}

bool WeightMappings::settle() {
  while (!unsettled_.empty()) {
    const auto weights = unsettled_.front().lock();
    if (weights && weights->settle()) return true;
    unsettled_.pop_front();
  }
  return false;
}

}  // namespace partc::engines
