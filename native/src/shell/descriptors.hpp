/** Open files and connections that this process may have (`partc/runtime/shell/descriptors.py`). */
#pragma once

#include <cstddef>

namespace partc::shell {

/** Lift the soft limit of open files to the hard one. Throws a run error: the system allows too few to run at all. */
void raise_limit();

/** Connections that may stand although nothing has come of them yet; a quarter of the files at most. */
std::size_t most_silent();

}  // namespace partc::shell
