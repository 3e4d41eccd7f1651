// build.json, read and checked (partc/format/build.py).
#pragma once

#include <string>
#include <string_view>

#include "errors.hpp"
#include "format/build.gen.hpp"
#include "format/dims.hpp"

namespace partc::build {

/// Reads and checks the text of a build.json. Throws Error: with the key that is wrong and the remedy.
Build parse_build(std::string_view text, const std::string& where);

/// Holds a build that was converted already against its own rules: every name refers to something, every size can be
/// reckoned. Throws Error: with the key that is wrong.
void check_build(const Build& build, const std::string& where);

/// Whether a relative path stays in its folder.
bool is_inside(std::string_view name);

/// Whether a prompt may take several steps.
bool goes_in_parts(const Model& model);

/// Tokens of a request behind each other that may be under way: in one step, or in several.
inline constexpr std::uint64_t MOST_STEP_TOKENS = 8;

/// Consecutive tokens of a request that one step computes at most.
std::uint64_t most_tokens(const Model& model);

/// Rows of one token each that a step has at most, of several requests or of one.
std::uint64_t most_rows(const Model& model);

/// Steps that a prompt takes at most.
std::uint64_t most_chunks(const Model& model);

/// Element type and shape of a state's buffer in the engine.
TensorType buffer_of(const State& state);

/// Whether each step writes all of a state, and not rows of it (partc/format/state_kinds.py).
bool is_rewritten(const State& state);

}  // namespace partc::build

namespace partc {

/// Refuses files of other formats, and of other versions of this one.
void check_format(const Object& raw, std::string_view known, const std::string& where);

/// Runs a reader of data; its errors get a place and the usual remedy.
template <class Read>
auto converted(const std::string& where, Read read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(ErrorKind::bundle, error.message, where, kRecompile);
  }
}

}  // namespace partc
