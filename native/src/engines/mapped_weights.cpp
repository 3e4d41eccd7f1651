#include "engines/mapped_weights.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>

#include "engines/memory.hpp"
#include "errors.hpp"

namespace partc::engines {
namespace {

constexpr std::uint64_t kMostBytes = 16 << 20;  // of a piece: Linux counts those that are mapped
constexpr const char* kAdvice = "/sys/kernel/mm/transparent_hugepage/";

std::string text_of(const std::string& name) {
  std::ifstream file(kAdvice + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

/** Whether Linux gives large pages of 2 MiB to who asks for them; where it does not say so, it is asked. */
bool has_large_pages() {
  if (access(kAdvice, F_OK)) return errno != ENOENT;
  const std::string size = text_of("hpage_pmd_size");
  return text_of("enabled").find("[never]") == std::string::npos &&
         (size.empty() || std::strtoull(size.c_str(), nullptr, 10) == kLargePage);
}

/** None: there is no memory. */
std::optional<Pages> large_pages(std::uint64_t bytes) {
  try {
    return Pages(bytes, Pages::Size::large);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

MappedWeights::MappedWeights(const std::string& path, std::vector<safetensors::Entry> entries)
    : file_(path), mapping_(file_, kLargePage) {
  static const bool is_faster = has_large_pages();
  if (!is_faster || mapping_.size() < kLargePage) return;
  std::ranges::sort(entries, {}, &safetensors::Entry::offset);
  std::uint64_t behind = 0;  // where the last piece ends
  for (const safetensors::Entry& entry : entries) {
    std::uint64_t begin = std::max(entry.offset / kLargePage * kLargePage, behind);
    for (; begin < entry.offset + entry.bytes; begin = behind) {
      const bool goes_on = !pieces_.empty() && begin == behind && pieces_.back().bytes < kMostBytes;
      if (!goes_on) pieces_.push_back({begin, 0});
      pieces_.back().bytes += kLargePage;
      behind = begin + kLargePage;
    }
  }
}

/** Whoever reads there meanwhile reads the file or its copy: Linux changes the one for the other in one call. */
bool MappedWeights::settle() {
  if (pieces_.empty()) return false;
  const auto [offset, bytes] = pieces_.front();
  pieces_.pop_front();
  if (std::optional<Pages> copy = large_pages(bytes)) {
    file_.read(offset, {copy->data(), std::min(bytes, mapping_.size() - offset)});
    if (copy->move_to(at(offset))) return true;
    mapping_.restore(file_, offset, bytes);
  }
  pieces_.clear();  // the file's own pages do as well
  return false;
}

std::vector<std::shared_ptr<std::byte>> WeightMappings::map(const std::string& path,
                                                            const std::vector<safetensors::Entry>& entries) {
  if (entries.empty()) return {};
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
