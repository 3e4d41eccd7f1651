/** The command line of `partc-runner`: the options of Python's, `--measure` apart (`partc/runtime/cli.py`). */
#pragma once

namespace partc {

/** Run a device until it is stopped; the exit code. */
int run(int count, char** words);

}  // namespace partc
