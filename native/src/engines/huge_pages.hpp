/** Large pages for the weights that an engine packs when it loads them, where Linux and glibc have them.

`partc/runtime/engines/huge_pages.py` says why. Elsewhere, nothing happens.
*/
#pragma once

#include <cstdint>

namespace partc::engines {

/** While it lives, the next `bytes` that are allocated lie side by side in large pages. */
class InHugePages {
 public:
  explicit InHugePages(std::uint64_t bytes);
  ~InHugePages();
  InHugePages(const InHugePages&) = delete;
  InHugePages& operator=(const InHugePages&) = delete;
};

/** Have threads that begin from now on allocate in the heap of the first one. */
void share_heap();

/** Return the freed blocks of the heap to the system: weights lie there once there was an `InHugePages`. */
void give_back();

}  // namespace partc::engines
