// Checks of clients' requests against the model, before anything runs; and prompts in parts (…/core/source/inputs.py).
#pragma once

#include <string>
#include <vector>

#include "core/step.hpp"
#include "core/tokens.hpp"

namespace partc::core {

using Prompts = std::vector<Counts>;

/// Holds prompts against the limits of the model. Throws Error: naming the prompt and the limit.
void check_prompts(const Prompts& prompts, std::uint64_t new_tokens, const Role& role);
/// Holds the tokens that an answer begins behind, and the answer, against the longest sequence. Throws Error.
void check_length(std::uint64_t tokens, const std::string& where, std::uint64_t new_tokens, const Role& role);
/// Holds the placeholders of prompts against the picture or the sound that comes with them, or does not.
/// Throws Error: there are too few or too many, or the model takes nothing besides its prompt.
void check_placeholders(const Prompts& prompts, bool has_tensors, const Role& role);
/// The sizes that the inputs of a model give to the symbols in their shapes.
/// Throws Error: an input is missing or unknown, or has another type or shape than the model's.
Dims check_tensors(const Tensors& arrays, const Role& role);
/// The tensors of a request, one a frame. Throws Error: the frames are not what is announced.
Tensors read_tensors(const std::vector<messages::TensorSpec>& specs, const Frames& frames);
/// The inputs of a model for prompts: right-padded to one length; a source, where the model reads one before.
Tensors padded(const Prompts& prompts, const Role& role);
/// The inputs for prompts with those of a picture or a sound; where none is given a blank one, which no token reads.
Tensors with_media(Tensors arrays, const Tensors& given, const Role& role);
/// The inputs of a model with the tokens that its answers begin behind, where it reads a source before.
Tensors with_start(Tensors arrays, const Role& role);

/// A part of a prompt, and its inputs.
struct PromptPart {
  std::uint64_t begin = 0, end = 0;
  Tensors inputs;
};
/// The columns of some tokens of a prompt; an input without an axis for its tokens stays whole.
Tensors columns(const Tensors& inputs, std::uint64_t begin, std::uint64_t end, const Role& role);
/// The ends of the parts of prompts of `width` tokens; one part where there are several sequences.
std::vector<std::uint64_t> prompt_ends(std::uint64_t width, std::uint64_t sequences, const build::Model& model);
/// The parts of a prompt; where the build has it so, there are several.
std::vector<PromptPart> prompt_parts(const Tensors& inputs, std::uint64_t width, std::uint64_t sequences,
                                     const Role& role);

}  // namespace partc::core
