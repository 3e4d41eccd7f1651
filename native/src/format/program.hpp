// Programs: the work of a device in one step of one request, as a list of instructions (partc/format/program.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace partc::program {

using Names = std::vector<std::string>;

/// Values that travel together between two devices.
struct Message {
  /// The other device.
  std::string device;
  Names values;
  auto operator<=>(const Message&) const = default;
};

/// Wait for the one message that holds these values.
struct Recv {
  Names values;
  std::string device;
  bool operator==(const Recv&) const = default;
};

/// Compute a sub-module; the values meet its inputs and outputs by position, and may be others than its own.
struct Run {
  std::string submodule;
  Names inputs, outputs;
  bool operator==(const Run&) const = default;
};

/// Send one message with these values; never waits.
struct Send {
  Names values;
  std::string device;
  bool operator==(const Send&) const = default;
};

/// Draw a token i64[batch] from logits [batch, 1, vocabulary].
struct Sample {
  std::string logits, token;
  bool operator==(const Sample&) const = default;
};

/// Add values of float32 and of one shape, from the first to the last.
struct Add {
  Names terms;
  std::string total;
  bool operator==(const Add&) const = default;
};

/// Cut a value along an axis: of n parts, part i has the indices from size·i/n to size·(i+1)/n, or none.
struct Cut {
  std::string whole;
  Names parts;
  std::uint64_t axis = 0;
  bool operator==(const Cut&) const = default;
};

/// Join values along an axis, in their order.
struct Join {
  Names parts;
  std::string whole;
  std::uint64_t axis = 0;
  bool operator==(const Join&) const = default;
};

/// Hand values to the client of the request; on the source only.
struct Emit {
  Names values;
  bool operator==(const Emit&) const = default;
};

/// Keep values for the later steps of the request, which read them by the same names.
struct Keep {
  Names values;
  bool operator==(const Keep&) const = default;
};

using Instruction = std::variant<Recv, Run, Send, Sample, Add, Cut, Join, Emit, Keep>;
using Program = std::vector<Instruction>;

/// The values that an instruction uses, which must be there before it.
Names reads(const Instruction& instruction);
/// The values that are there after it.
Names writes(const Instruction& instruction);
/// The messages that it waits for, and those that it sends: one at most.
std::vector<Message> awaits(const Instruction& instruction);
std::vector<Message> sends(const Instruction& instruction);

/// The phase of a part of a prompt behind which more comes; its programs follow from those of `prefill`.
inline constexpr std::string_view CHUNK = "chunk";
/// The phase of a decode step that is computed again, and whose token is not waited for.
inline constexpr std::string_view REPLAY = "replay";

/// The symbol of the tokens that a step of a sub-module computes: of a source, or those of the step itself.
const std::string& row_symbol(const std::string& submodule);

/// Reads a program. Throws Error: naming `where` and the line.
Program parse_program(std::string_view text, const std::string& where);
/// The text of one instruction.
std::string print_instruction(const Instruction& instruction);

/// The values that a program keeps for later steps.
Names kept_by(const Program& program);

/// The program of a step whose token is not wanted: nothing is sampled, emitted, or sent to where it would be.
Program tokenless(const Program& program);

}  // namespace partc::program
