#include "errors.hpp"

#include <utility>

#include "format/text.hpp"

namespace partc {

Error::Error(ErrorKind of_kind, std::string text, std::string place, std::string advice, std::string reason)
    : kind(of_kind),
      message(to_utf8(std::move(text))),  // an error travels, and its reader takes nothing but UTF-8
      where(to_utf8(std::move(place))),
      hint(to_utf8(std::move(advice))),
      cause(std::move(reason)),
      text_(message) {
  if (!where.empty()) text_ = where + ": " + text_;
  if (!hint.empty()) text_ += "\n  hint: " + hint;
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
