/** The one exception of the runner: what `partc.errors` calls BundleError, RunError and InternalError. */
#pragma once

#include <exception>
#include <string>

namespace partc {

/** Which of Python's errors this is. */
enum class ErrorKind {
  bundle,    // a bundle that is damaged, foreign or incomplete: exit code 1
  run,       // a request or a runner failed; the cause tells why
  internal,  // a bug of ours: exit code 70
};

/** Something is wrong; whoever started the work catches it, and nobody between. */
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message, std::string where = "", std::string hint = "",
        std::string cause = "input");

  /** `where: message`, and the hint on a line of its own, as Python prints it. */
  const char* what() const noexcept override { return text_.c_str(); }
  int exit_code() const;

  ErrorKind kind;
  std::string message;
  /** The file, key or line that it is wrong in; may be empty. */
  std::string where;
  /** The change to make, or the command to type next; may be empty. */
  std::string hint;
  /** Of kind `run` alone: lost-peer, stalled, refused, input or bug. */
  std::string cause;

 private:
  std::string text_;
};

Error bundle_error(std::string message, std::string where = "", std::string hint = "");
Error run_error(std::string message, std::string where = "", std::string hint = "", std::string cause = "input");
Error internal_error(std::string message);

/** The hint of most errors of bundles. */
inline constexpr const char* kRecompile =
    "compile again: partc compile MODEL --target DEVICES, and copy the whole device folder";

}  // namespace partc
