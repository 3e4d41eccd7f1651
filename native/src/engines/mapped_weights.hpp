/** Weights as they lie in their files: mapped, so that steps begin at once, and put into large pages meanwhile.

Every token reads weights from end to end, and the processor's prefetching ends with each page. A mapped file mostly has
small ones, and copying it first would be a third of the time until the first token. So a piece after the other is
copied into large pages, which then take the addresses of that piece: nobody who reads there notices.
*/
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "format/local_file.hpp"
#include "format/safetensors.hpp"

namespace partc::engines {

/** A file of weights at an address that stays its own. */
class MappedWeights {
 public:
  /** `entries`: the tensors that will be read. Throws a bundle error: there is no such file. */
  MappedWeights(const std::string& path, std::vector<safetensors::Entry> entries);

  std::byte* at(std::uint64_t offset) const { return mapping_.data() + offset; }
  const LocalFile& file() const { return file_; }
  /** Put the next piece of it into large pages; false where there is none, or no memory for it. */
  bool settle();

 private:
  struct Piece {
    std::uint64_t offset, bytes;
  };

  LocalFile file_;
  LocalFile::Mapping mapping_;
  std::deque<Piece> pieces_;  // those that lie in pages of the file
};

/** The files of an engine's weights. One thread uses it; the tensors are anybody's. */
class WeightMappings {
 public:
  /** Tensors of a file, which stay as long as somebody has one of them; what lies askew is copied.

  Throws a bundle error: there is no such file, or it cannot be read.
  */
  std::vector<std::shared_ptr<std::byte>> map(const std::string& path, const std::vector<safetensors::Entry>& entries);
  /** Put a piece of one of them into large pages, which takes milliseconds; whether there may be another. */
  bool settle();

 private:
  std::deque<std::weak_ptr<MappedWeights>> unsettled_;
};

}  // namespace partc::engines
