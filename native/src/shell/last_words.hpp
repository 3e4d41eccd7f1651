/** The last line that a runner writes to standard output when it fails: why, for the program that started it. */
#pragma once

#include "errors.hpp"

namespace partc::shell {

/** Write the line; nobody may be there any more. */
void say_last_words(const Error& error);

}  // namespace partc::shell
