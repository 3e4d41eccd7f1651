#include "core/source/inputs.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "format/facts.gen.hpp"
#include "format/prompt_steps.hpp"
#include "format/text.hpp"

namespace partc::core {
namespace {

void check_prompt(const Counts& prompt, const std::string& where, std::uint64_t new_tokens, const Role& role) {
  if (prompt.empty()) throw run_error("the prompt is empty", where, "at least one token");
  const std::uint64_t* most = role.dims().find(std::string(SOURCE));
  if (most != nullptr && prompt.size() > *most) {
    throw run_error(std::to_string(prompt.size()) + " tokens are more than max_source, " + std::to_string(*most), where,
                    "shorten it, or compile with a larger max_source");
  }
  const std::size_t start = role.model().start_tokens.size();
  check_length(start != 0 ? start : prompt.size(), where, new_tokens, role);
  check_tokens(prompt, where, role.model());
}

/// The symbol that a size is, alone; null: it is something else.
const std::string* lone_symbol(const Size& size) {
  const std::string* text = std::get_if<std::string>(&size);
  return text != nullptr && symbols(size) == std::set<std::string>{*text} ? text : nullptr;
}

/// The name of an element type; the declared one where it is held like that (bfloat16).
std::string_view type_name(const Tensor& tensor, const std::string& declared) {
  const ElementType* type = element_type(declared);
  return type->held == tensor.type->held ? type->name : tensor.type->name;
}

std::string names_of(const Types& types) {
  Names names;
  for (const auto& [name, type] : types) names.push_back(name);
  return joined(names, ", ");
}

/// A part of a tensor along an axis.
Tensor sliced(const Tensor& tensor, std::size_t axis, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t outer = 1, inner = tensor.type->bytes;
  for (std::size_t at = 0; at < axis; ++at) outer *= tensor.shape[at];
  for (std::size_t at = axis + 1; at < tensor.shape.size(); ++at) inner *= tensor.shape[at];
  std::string bytes;
  for (std::uint64_t at = 0; at < outer; ++at) {
    bytes += tensor.bytes.text().substr((at * tensor.shape[axis] + begin) * inner, (end - begin) * inner);
  }
  Tensor found{tensor.type, tensor.shape, Frame::copy(bytes)};
  found.shape[axis] = end - begin;
  return found;
}

/// Zeros of the largest sizes that the plan has.
Tensor blank(const build::TensorType& declared, const Dims& dims) {
  const ElementType* type = element_type(declared.dtype);
  const Shape shape = evaluate_shape(declared.shape, dims);
  return {type, shape, Frame::copy(std::string(bytes_of(shape, type->bytes), '\0'))};
}

}  // namespace

void check_prompts(const Prompts& prompts, std::uint64_t new_tokens, const Role& role) {
  const build::Model& model = role.model();
  if (!role.takes_tokens()) throw run_error("this model takes tensors, not prompts", "", "send tensors for its inputs");
  if (prompts.empty() || prompts.size() > model.max_batch) {
    throw run_error(std::to_string(prompts.size()) + " prompts in one request, at most " +
                        std::to_string(model.max_batch),
                    "", "send fewer at once, or compile with a larger max_batch");
  }
  if (role.generates() && new_tokens < 1) {
    throw run_error("at least one token must be asked for", "max_new_tokens", "1 or more");
  }
  std::set<std::size_t> lengths;
  for (const Counts& prompt : prompts) lengths.insert(prompt.size());
  if (model.uniform_positions && model.start_tokens.empty() && lengths.size() > 1) {
    throw run_error("this model takes prompts of equal length only in one request", "", "send them one by one");
  }
  for (std::size_t row = 0; row < prompts.size(); ++row) {
    check_prompt(prompts[row], "prompt " + std::to_string(row + 1), new_tokens, role);
  }
}

void check_length(std::uint64_t tokens, const std::string& where, std::uint64_t new_tokens, const Role& role) {
  const std::uint64_t most = role.model().max_sequence, fresh = role.generates() ? new_tokens : 0;
  if (tokens <= most && fresh <= most - tokens) return;
  const std::string asked = role.generates() ? " and " + std::to_string(new_tokens) + " new ones" : "";
  throw run_error(std::to_string(tokens) + " tokens" + asked + " are more than max_sequence, " + std::to_string(most),
                  where, "shorten it, ask for less, or compile with a larger max_sequence");
}

void check_placeholders(const Prompts& prompts, bool has_tensors, const Role& role) {
  const build::Model& model = role.model();
  if (!model.placeholder_token) {
    if (!has_tensors) return;
    throw run_error("a model that generates text takes prompts, not tensors", "", "send prompts");
  }
  const std::string token = std::to_string(*model.placeholder_token);
  const std::uint64_t wanted = has_tensors ? model.placeholders : 0;
  for (std::size_t row = 0; row < prompts.size(); ++row) {
    const auto found = static_cast<std::uint64_t>(std::ranges::count_if(prompts[row], [&](std::uint64_t id) {
      return static_cast<std::int64_t>(id) == *model.placeholder_token;
    }));
    if (found == wanted) continue;
    const std::string takes =
        has_tensors ? "what is given takes " + std::to_string(wanted) : "nothing is given that would take their place";
    throw run_error("it has the token " + token + " " + std::to_string(found) + " times, and " + takes,
                    "prompt " + std::to_string(row + 1), "partc run writes them: --image, --audio");
  }
}

Dims check_tensors(const Tensors& arrays, const Role& role) {
  std::set<std::string> odd;
  for (const auto& [name, type] : role.inputs) {
    if (!arrays.contains(name)) odd.insert(name);
  }
  for (const auto& [name, array] : arrays) {
    if (!role.inputs.contains(name)) odd.insert(name);
  }
  if (!odd.empty()) {
    const std::string state = role.inputs.contains(*odd.begin()) ? "is missing" : "is unknown";
    throw run_error("the input " + in_quotes(*odd.begin()) + " " + state, "", "inputs: " + names_of(role.inputs));
  }
  Dims dims;
  std::vector<messages::TensorSpec> specs;
  for (const auto& [name, array] : arrays) {
    const build::TensorType& declared = role.inputs.at(name);
    if (declared.shape.size() != array.shape.size()) {
      throw run_error(std::to_string(array.shape.size()) + " dimensions, not " + std::to_string(declared.shape.size()),
                      name);
    }
    for (std::size_t axis = 0; axis < array.shape.size(); ++axis) {
      const std::string* symbol = lone_symbol(declared.shape[axis]);
      if (symbol != nullptr && !dims.contains(*symbol)) dims.set(*symbol, array.shape[axis]);
    }
    specs.push_back({name, std::string(type_name(array, declared.dtype)), array.shape});
  }
  for (const auto& [symbol, size] : dims) {
    const std::uint64_t most = role.dims().at(symbol);
    if (size <= most) continue;
    throw run_error(symbol + " is " + std::to_string(size) + ", the plan is for at most " + std::to_string(most), "",
                    "send less at once, or compile for more");
  }
  check_specs(specs, role.inputs, dims);
  return dims;
}

Tensors read_tensors(const std::vector<messages::TensorSpec>& specs, const Frames& frames) {
  if (specs.size() != frames.size()) {
    throw run_error(std::to_string(specs.size()) + " tensors are announced, " + std::to_string(frames.size()) +
                    " came");
  }
  Tensors arrays;
  for (std::size_t at = 0; at < specs.size(); ++at) {
    const messages::TensorSpec& spec = specs[at];
    if (frames[at].size != bytes_of(spec.shape, element_type(spec.dtype)->bytes)) {
      throw run_error(std::to_string(frames[at].size) + " bytes are not those of " + spec.dtype + list_text(spec.shape),
                      spec.name);
    }
    // No elements, but sizes whose product no memory can have.
    Shape sizes = spec.shape;
    std::ranges::replace(sizes, 0u, 1u);
    if (bytes_of(sizes, element_type(spec.dtype)->bytes) >= MOST_TOKENS) {
      throw run_error(list_text(spec.shape) + " is no shape", spec.name);
    }
    arrays.set(spec.name, to_tensor(frames[at], spec.dtype, spec.shape));
  }
  return arrays;
}

Tensors padded(const Prompts& prompts, const Role& role) {
  std::size_t width = 0;
  for (const Counts& prompt : prompts) width = std::max(width, prompt.size());
  std::vector<std::int64_t> ids;
  for (const Counts& prompt : prompts) {
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    ids.insert(ids.end(), width - prompt.size(), role.model().pad_token_id.value_or(0));
  }
  const Shape shape{prompts.size(), width};
  if (role.inputs.contains(std::string(SOURCE_IDS))) {
    std::vector<std::int64_t> lengths;
    for (const Counts& prompt : prompts) lengths.push_back(static_cast<std::int64_t>(prompt.size()));
    return with_start({{std::string(SOURCE_IDS), Tensor::int64(shape, ids)},
                       {std::string(SOURCE_LENGTH), Tensor::int64({prompts.size()}, lengths)}},
                      role);
  }
  Tensors arrays{{std::string(INPUT_IDS), Tensor::int64(shape, ids)}};
  if (role.inputs.contains("token_type_ids")) {
    arrays.set("token_type_ids", Tensor::int64(shape, std::vector<std::int64_t>(ids.size())));
  }
  return arrays;
}

Tensors with_media(Tensors arrays, const Tensors& given, const Role& role) {
  if (!role.model().placeholder_token) return arrays;
  for (const auto& [name, array] : given) arrays.set(name, array);
  if (!given.empty()) return arrays;
  for (const auto& [name, declared] : role.inputs) {
    if (!arrays.contains(name)) arrays.set(name, blank(declared, role.dims()));
  }
  return arrays;
}

Tensors with_start(Tensors arrays, const Role& role) {
  const std::vector<std::int64_t>& start = role.model().start_tokens;
  if (start.empty() || arrays.empty()) return arrays;
  const Shape& first = arrays.begin()->second.shape;
  const std::uint64_t rows = first.empty() ? 1 : first.front();
  std::vector<std::int64_t> ids;
  for (std::uint64_t row = 0; row < rows; ++row) ids.insert(ids.end(), start.begin(), start.end());
  arrays.set(std::string(INPUT_IDS), Tensor::int64({rows, start.size()}, ids));
  return arrays;
}

Tensors columns(const Tensors& inputs, std::uint64_t begin, std::uint64_t end, const Role& role) {
  Tensors found;
  for (const auto& [name, array] : inputs) {
    const std::vector<Size>& declared = role.inputs.at(name).shape;
    const auto axis = std::ranges::find(declared, Size{std::string("sequence")});
    const bool is_whole = axis == declared.end();
    const auto place = static_cast<std::size_t>(axis - declared.begin());
    found.set(name, is_whole ? array : sliced(array, place, begin, end));
  }
  return found;
}

std::vector<std::uint64_t> prompt_ends(std::uint64_t width, std::uint64_t sequences, const build::Model& model) {
  std::vector<std::uint64_t> ends;
  if (!model.prompt_steps.empty() && sequences == 1) {
    for (const std::uint64_t rows : steps_of(width, model.prompt_steps)) {
      ends.push_back((ends.empty() ? 0 : ends.back()) + rows);
    }
    return ends;
  }
  const std::uint64_t size = sequences == 1 ? model.prompt_chunk.value_or(0) : 0;
  const std::uint64_t count = size == 0 ? 1 : (width + size - 1) / size;
  for (std::uint64_t part = 0; part < count; ++part) ends.push_back(width * (part + 1) / count);
  return ends;
}

std::vector<PromptPart> prompt_parts(const Tensors& inputs, std::uint64_t width, std::uint64_t sequences,
                                     const Role& role) {
  const std::vector<std::uint64_t> ends = prompt_ends(width, sequences, role.model());
  if (ends.size() == 1 || !role.programs.contains(std::string(program::CHUNK))) return {{0, width, inputs}};
  std::vector<PromptPart> parts;
  std::uint64_t begin = 0;
  for (const std::uint64_t end : ends) {
    parts.push_back({begin, end, columns(inputs, begin, end, role)});
    begin = end;
  }
  return parts;
}

}  // namespace partc::core
