/** The processor of this machine (`partc/runtime/processor.py`), held against what a library was compiled for. */
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "format/build.hpp"

namespace partc::engines {

/** Threads that are asked for, at most: no device has more cores, and thousands take minutes to start. */
inline constexpr std::size_t kMostThreads = 1024;

/** `aarch64` or `x86_64`. */
std::string architecture();

/** The features of the first processor as Linux calls them; empty where it does not list them. */
std::set<std::string> processor_features();

/** Cores that this process may run on; two threads of one core count once. */
std::size_t usable_cores();

/** The first number of OMP_NUM_THREADS, which may be a list, up to `kMostThreads`; else one for each core. */
std::size_t usual_threads();

/** Make sure that the code in `path` is for a processor like this one; other code would end the process.

Throws a bundle error: it is for another architecture, or uses features that this processor has not.
*/
void check_processor(const build::LibraryOptions& options, const std::string& path);

}  // namespace partc::engines
