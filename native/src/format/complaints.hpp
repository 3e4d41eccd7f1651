// The two errors that the formats raise most.
#pragma once

#include <string>
#include <utility>

#include "errors.hpp"

namespace partc {

/// A file of a bundle is wrong, and compiling again helps.
inline Error recompile(std::string message, std::string where) {
  return bundle_error(std::move(message), std::move(where), kRecompile);
}

/// The other side sent what must not be trusted.
inline Error refused(std::string message, std::string where = "", std::string hint = "") {
  return run_error(std::move(message), std::move(where), std::move(hint), "refused");
}

}  // namespace partc
