#include "format/build.hpp"

#include <algorithm>
#include <functional>

#include "format/complaints.hpp"
#include "format/digests.hpp"
#include "format/dtypes.hpp"
#include "format/json.hpp"
#include "format/prompt_steps.hpp"
#include "format/text.hpp"

namespace partc {

void check_format(const Object& raw, std::string_view known, const std::string& where) {
  const Value* value = raw.find("format");
  const std::string* found = value == nullptr ? nullptr : value->as<std::string>();
  if (found != nullptr && *found == known) return;
  const std::string_view family = known.substr(0, known.find('/') + 1);
  const bool is_version = found != nullptr && found->starts_with(family);
  throw bundle_error("format: " + in_quotes(found == nullptr ? "null" : *found) + " cannot be read, this partc reads " +
                         in_quotes(known),
                     where,
                     is_version ? "install the partc that compiled it, or compile again with this one" : kRecompile);
}

namespace build {
namespace {

bool is_compiled(const EngineSpec& engine) { return engine.kind == "plan" || engine.kind == "gpu"; }

/// Whether an engine of compiled code has this provider.
bool has_provider(const EngineSpec& engine) {
  if (engine.kind == "plan") return engine.provider == "cpu";
  return engine.provider == "cuda" || engine.provider == "opencl";
}

std::string engine_problem(const Build& build) {
  const EngineSpec& engine = build.engine;
  if (is_compiled(engine) != engine.library.has_value()) return "library: is there just where the kind is plan or gpu";
  if (!engine.library) return "";
  if (!has_provider(engine)) {
    return "provider: the engine " + engine.kind + " has no provider " + in_quotes(engine.provider);
  }
  for (const Submodule& submodule : build.submodules) {
    if (!engine.library->functions.contains(submodule.name)) {
      return "library.functions: " + in_quotes(submodule.name) + " is missing";
    }
  }
  return "";
}

std::string layout_problem(const State& state, const EngineSpec& engine) {
  if (state.layout == "plain") return "";
  if (engine.kind != "plan") return engine.kind + " on " + engine.provider + " holds no panels";
  auto is_number = [](const Size& size) { return std::holds_alternative<std::uint64_t>(size); };
  const bool is_cache = !is_rewritten(state) && state.shape.size() == 4 &&
                        std::all_of(state.shape.begin() + 2, state.shape.end(), is_number);
  return is_cache ? "" : "only rows [batch, heads, N, N] lie in panels";
}

std::string size_problem(const Size& size, const Dims& dims) {
  std::set<std::string> found;
  try {
    found = symbols(size);
  } catch (const Error&) {
    return "shape: this is not a size";
  }
  for (const std::string& symbol : found) {
    if (!dims.contains(symbol)) return "shape: " + in_quotes(symbol) + " has no largest value in dims";
  }
  return "";
}

std::string type_problem(const std::string& dtype, const std::vector<Size>& shape, const Dims& dims) {
  if (element_type(dtype) == nullptr) return "dtype: " + in_quotes(dtype) + " is unknown";
  for (const Size& size : shape) {
    if (std::string problem = size_problem(size, dims); !problem.empty()) return problem;
  }
  return "";
}

/// Calls `act(place, dtype, shape)` for everything in the file that has a type.
void for_each_type(const Build& build,
                   const std::function<void(std::string, const std::string&, const std::vector<Size>&)>& act) {
  for (const Port& port : build.inputs) act("inputs." + port.name, port.dtype, port.shape);
  for (const Port& port : build.outputs) act("outputs." + port.name, port.dtype, port.shape);
  for (const auto& [name, type] : build.values) act("values." + name, type.dtype, type.shape);
  for (const Submodule& submodule : build.submodules) {
    for (const State& state : submodule.states) {
      act("submodules." + submodule.name + ": " + state.name, state.dtype, state.shape);
    }
  }
}

void check_files(const Build& build, const std::string& where) {
  for (const auto& [name, entry] : build.files) {
    if (!is_inside(name)) throw recompile("files: " + in_quotes(name) + " does not stay in the folder", where);
  }
  for (const Submodule& submodule : build.submodules) {
    std::vector<std::string> files{submodule.file};
    files.insert(files.end(), submodule.weights.begin(), submodule.weights.end());
    for (const std::string& file : files) {
      if (build.files.contains(file)) continue;
      throw recompile("submodules: " + in_quotes(file) + " of " + submodule.name + " is not among the files", where);
    }
    if (submodule.covers && submodule.covers->first > submodule.covers->second) {
      throw recompile("submodules: covers of " + submodule.name + " goes backwards", where);
    }
  }
}

std::string sizes_problem(const StepSizes& sizes, std::uint64_t least, std::uint64_t most) {
  std::uint64_t before = least - 1;
  for (const auto& [rows, cost] : sizes) {
    if (rows <= before || rows > most) {
      return "expected sizes from " + std::to_string(least) + " to " + std::to_string(most) +
             ", smallest first, each once";
    }
    before = rows;
  }
  // So sums of costs stay below 2**64.
  const bool are_small = std::ranges::all_of(sizes, [](const auto& size) { return size.second < 1u << 30; });
  return are_small ? "" : "expected costs below 2**30";
}

}  // namespace

Build parse_build(std::string_view text, const std::string& where) {
  Object raw = read_json_object(text, where);
  check_format(raw, BUILD_FORMAT, where);
  if (const Value* digest = raw.find("digest")) {
    Object rest = raw;
    rest.erase("digest");
    if (*digest != Value{data_digest({std::move(rest)})}) {
      throw recompile("the file is damaged: its digest does not fit", where);
    }
  }
  Build build = converted(where, [&] { return read_build({std::move(raw)}); });
  check_build(build, where);
  return build;
}

void check_build(const Build& build, const std::string& where) {
  if (const std::string problem = sizes_problem(build.model.prompt_steps, 1, build.model.max_sequence);
      !problem.empty()) {
    throw recompile("model.prompt_steps: " + problem, where);
  }
  if (const std::string problem = sizes_problem(build.model.step_tokens, 2, MOST_STEP_TOKENS); !problem.empty()) {
    throw recompile("model.step_tokens: " + problem, where);
  }
  check_files(build, where);
  if (const std::string problem = engine_problem(build); !problem.empty()) throw recompile("engine." + problem, where);
  for (const Submodule& submodule : build.submodules) {
    for (const State& state : submodule.states) {
      const std::string problem = layout_problem(state, build.engine);
      if (!problem.empty()) throw recompile("submodules: layout of " + state.name + ": " + problem, where);
    }
  }
  for_each_type(build, [&](const std::string& place, const std::string& dtype, const std::vector<Size>& shape) {
    const std::string problem = type_problem(dtype, shape, build.dims);
    if (!problem.empty()) throw recompile(place + ": " + problem, where);
  });
}

bool is_inside(std::string_view name) {
  if (name.empty() || name.starts_with('/') || name.find('\\') != name.npos || name.find('\0') != name.npos)
    return false;
  bool has_parts = false;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find('/'), name.size());
    const std::string_view part = name.substr(0, end);
    if (part == "..") return false;
    has_parts = has_parts || !(part.empty() || part == ".");
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return has_parts;
}

bool goes_in_parts(const Model& model) { return model.prompt_chunk || !model.prompt_steps.empty(); }

std::uint64_t most_tokens(const Model& model) { return model.step_tokens.empty() ? 1 : model.step_tokens.back().first; }

std::uint64_t most_rows(const Model& model) { return std::max(model.step_requests, most_tokens(model)); }

std::uint64_t most_chunks(const Model& model) {
  if (!model.prompt_steps.empty()) return most_steps(model.max_sequence, model.prompt_steps);
  return model.prompt_chunk ? (model.max_sequence + *model.prompt_chunk - 1) / *model.prompt_chunk : 1;
}

bool is_rewritten(const State& state) {
  if (state.kind == "rows") return false;
  if (state.kind == "whole") return true;
  throw internal_error("states of the kind " + state.kind + " are new here");
}

TensorType buffer_of(const State& state) {
  if (state.layout == "plain") return {state.dtype, state.shape};
  const std::uint64_t positions = std::get<std::uint64_t>(state.shape[2]);
  return {state.dtype, {state.shape[0], state.shape[1], (positions + PANEL - 1) / PANEL, state.shape[3], PANEL}};
}

}  // namespace build
}  // namespace partc
