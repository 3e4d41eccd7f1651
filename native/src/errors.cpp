#include "errors.hpp"

#include <utility>

namespace partc {

Error::Error(ErrorKind kind, std::string message, std::string where, std::string hint, std::string cause)
    : kind(kind),
      message(std::move(message)),
      where(std::move(where)),
      hint(std::move(hint)),
      cause(std::move(cause)),
      text_(this->message) {
  if (!this->where.empty()) text_ = this->where + ": " + text_;
  if (!this->hint.empty()) text_ += "\n  hint: " + this->hint;
}

int Error::exit_code() const {
  if (kind == ErrorKind::internal) return 70;
  return kind == ErrorKind::run && cause == "bug" ? 70 : 1;
}

Error bundle_error(std::string message, std::string where, std::string hint) {
  return Error(ErrorKind::bundle, std::move(message), std::move(where), std::move(hint));
}

Error run_error(std::string message, std::string where, std::string hint, std::string cause) {
  return Error(ErrorKind::run, std::move(message), std::move(where), std::move(hint), std::move(cause));
}

Error internal_error(std::string message) { return Error(ErrorKind::internal, std::move(message)); }

}  // namespace partc
