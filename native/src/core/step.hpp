// One step of a request: its sizes, its rows on the wire, and how it is held against the placement (…/core/step.py).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/commands.hpp"
#include "format/role.hpp"
#include "format/tensor.hpp"

namespace partc::core {

/// Steps with known results that a request may have under way; the last of them is waited for.
inline constexpr std::uint64_t MOST_FORCED = build::MOST_STEP_TOKENS;
/// Steps behind the one with the last known token that a request may have under way; their tokens are guesses.
inline constexpr std::uint64_t MOST_GUESSED = MOST_FORCED - 1;

using Likelies = std::vector<std::vector<messages::Likely>>;

/// A request that has one row in a step that it shares.
struct StepMember {
  std::uint64_t request = 0, slot = 0, step = 0, branch = 0;

  bool operator==(const StepMember&) const = default;
};

/// A step of a request: a prompt, a part of one, or a token; or several rows of one token each.
///
/// Such rows are those of several requests, which have one each, of their own slots and at their own positions: a shared
/// step, which bears the number of the first. Or they are consecutive tokens of one request, in its slot, each at the
/// position behind the one before: those behind the first are guesses.
struct Step {
  /// Counts up at the source; never used twice.
  std::uint64_t request = 0;
  /// Which of the pre-allocated states the request has, below max_requests.
  std::uint64_t slot = 0;
  /// Counts from 0; the prefill is 0, or as many higher as it has parts before it.
  std::uint64_t step = 0;
  /// The program to run.
  std::string phase;
  /// The size of every symbol in this step.
  Dims dims;
  /// (batch,) valid tokens in the cache, and valid new tokens, of each sequence; empty for the task `graph`.
  Counts position, length;
  /// Present in step 0 alone.
  std::optional<messages::Opening> opening;
  /// Per sequence the probabilities of its token and of others; present once it is drawn, where they are wanted: in a
  /// shared step they are empty for requests that want none.
  Likelies likely;
  /// The other requests that share the step; it is one of decode then.
  std::vector<StepMember> others;
  /// The step from which on its request was last taken back; 0: it never was.
  std::uint64_t branch = 0;
  /// Seconds that the busiest device so far has computed for it; none: nobody wants to know.
  std::optional<double> busy_s;
  /// Guessed tokens that it takes behind its own, a row each; it is one of decode then, and nobody shares it.
  std::uint64_t further = 0;

  /// Rows that are steps of their own: of several requests, or of consecutive tokens of one.
  std::uint64_t rows() const { return 1 + others.size() + further; }

  /// The requests that it belongs to, in the order of their rows if there are several.
  std::vector<StepMember> members() const;
  /// (batch,) valid tokens in the cache of each sequence after this step.
  Counts end() const;
  /// Whether two devices mean the same step; only the first messages of step 0 have an opening.
  bool same_as(const Step& other) const;
};

/// One step of the tokens of several requests, or of consecutive tokens of one.
Step together(const std::vector<Step>& steps);
/// The steps of one row each that `together` made one of; the step itself where it is one.
std::vector<Step> apart(const Step& step);
/// What every device has of a step without a message: `position`, `length` and `index`, as far as the task has them.
Tensors step_inputs(const Step& step, const Role& role);
/// The rows of a step as they travel; one row for the task `graph`.
std::vector<messages::Row> rows_of(const Step& step, std::uint64_t max_batch);
/// The step that a message belongs to. Throws Error: its rows are neither those of one request nor one each of several,
/// nor consecutive tokens of one.
Step step_of(const messages::Data& data, const Role& role);
/// Holds the numbers of a step against what the placement allows. Throws Error: with the field that is wrong.
void check_step(const Step& step, const Role& role);

using Types = Map<std::string, build::TensorType>;

/// The descriptions of tensors that a program names, for the header of their message.
std::vector<messages::TensorSpec> announced(const Tensors& values, const Types& types);
/// Holds announced tensors against their declared types. Throws Error: with the value and what is wrong with it.
void check_specs(const std::vector<messages::TensorSpec>& specs, const Types& types, const Dims& dims);
/// Holds the bytes that came against the announced types and shapes. Throws Error: as above.
void check_sizes(const std::vector<messages::TensorSpec>& specs, const Frames& frames);

/// `[1, 2]`
std::string list_text(const Counts& numbers);
/// The size of a symbol, or another number where it has none.
std::uint64_t size_or(const Dims& dims, const std::string& symbol, std::uint64_t usual);

}  // namespace partc::core
