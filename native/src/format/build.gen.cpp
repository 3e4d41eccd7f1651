// Written by `python -m partc.format.native native/src/format`: change the Python structs, not this file.

#include "format/build.gen.hpp"

#include "format/structs.hpp"

namespace partc {
namespace {

constexpr Limits real_least_0_0_real_most_1_0{.real_least = 0.0, .real_most = 1.0};
constexpr Limits most_9007199254740991{.most = 9007199254740991ull};
constexpr Limits item_most_9007199254740991{.item = &most_9007199254740991};
constexpr Limits one_of_rows_whole{.one_of = "rows whole"};
constexpr Limits one_of_panels_plain{.one_of = "panels plain"};
constexpr Limits pattern_is_task{.pattern = is_task};
constexpr Limits least_1_most_9007199254740991{.least = 1u, .most = 9007199254740991ull};
constexpr Limits item_least_1_most_9007199254740991{.item = &least_1_most_9007199254740991};
constexpr Limits item_item_least_1_most_9007199254740991{.item = &item_least_1_most_9007199254740991};
constexpr Limits shortest_1_item_item_least_1_most_9007199254740991{.shortest = 1u, .item = &item_least_1_most_9007199254740991};
constexpr Limits pattern_is_platform{.pattern = is_platform};
constexpr Limits pattern_is_device_name{.pattern = is_device_name};
constexpr Limits shortest_2_longest_2_item_pattern_is_device_name{.shortest = 2u, .longest = 2u, .item = &pattern_is_device_name};
constexpr Limits longest_64_pattern_is_sha256{.longest = 64u, .pattern = is_sha256};
constexpr Limits one_of_partc_build_2{.one_of = "partc-build/2"};
constexpr Limits item_pattern_is_device_name{.item = &pattern_is_device_name};

}  // namespace

namespace build {

template <class Visitor>
void fields(Visitor& visit, Is<Limits> auto& item) {
  visit.begin(Form::map, 3, "");
  visit("battery", item.battery, Need::optional, real_least_0_0_real_most_1_0);
  visit("temperature_c", item.temperature_c, Need::optional, anything);
  visit("memory_bytes", item.memory_bytes, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<TensorType> auto& item) {
  visit.begin(Form::map, 2, "");
  visit("dtype", item.dtype, Need::required, anything);
  visit("shape", item.shape, Need::required, item_most_9007199254740991);
}

template <class Visitor>
void fields(Visitor& visit, Is<Port> auto& item) {
  visit.begin(Form::map, 3, "");
  visit("name", item.name, Need::required, anything);
  visit("dtype", item.dtype, Need::required, anything);
  visit("shape", item.shape, Need::required, item_most_9007199254740991);
}

template <class Visitor>
void fields(Visitor& visit, Is<State> auto& item) {
  visit.begin(Form::map, 7, "");
  visit("name", item.name, Need::required, anything);
  visit("input", item.input, Need::required, anything);
  visit("output", item.output, Need::required, anything);
  visit("dtype", item.dtype, Need::required, anything);
  visit("shape", item.shape, Need::required, item_most_9007199254740991);
  visit("kind", item.kind, Need::optional, one_of_rows_whole);
  visit("layout", item.layout, Need::optional, one_of_panels_plain);
}

template <class Visitor>
void fields(Visitor& visit, Is<Submodule> auto& item) {
  visit.begin(Form::map, 7, "");
  visit("name", item.name, Need::required, anything);
  visit("file", item.file, Need::required, anything);
  visit("weights", item.weights, Need::required, anything);
  visit("inputs", item.inputs, Need::required, anything);
  visit("outputs", item.outputs, Need::required, anything);
  visit("states", item.states, Need::optional, anything);
  visit("covers", item.covers, Need::optional, item_most_9007199254740991);
}

template <class Visitor>
void fields(Visitor& visit, Is<Model> auto& item) {
  visit.begin(Form::map, 22, "");
  visit("name", item.name, Need::required, anything);
  visit("task", item.task, Need::required, pattern_is_task);
  visit("dtype", item.dtype, Need::required, anything);
  visit("max_sequence", item.max_sequence, Need::required, least_1_most_9007199254740991);
  visit("max_batch", item.max_batch, Need::required, least_1_most_9007199254740991);
  visit("max_requests", item.max_requests, Need::required, least_1_most_9007199254740991);
  visit("vocab_size", item.vocab_size, Need::required, most_9007199254740991);
  visit("eos_token_ids", item.eos_token_ids, Need::required, anything);
  visit("pad_token_id", item.pad_token_id, Need::required, anything);
  visit("bos_token_id", item.bos_token_id, Need::required, anything);
  visit("labels", item.labels, Need::required, anything);
  visit("start_tokens", item.start_tokens, Need::optional, anything);
  visit("placeholder_token", item.placeholder_token, Need::optional, anything);
  visit("placeholders", item.placeholders, Need::optional, most_9007199254740991);
  visit("picture_size", item.picture_size, Need::optional, item_least_1_most_9007199254740991);
  visit("uniform_positions", item.uniform_positions, Need::optional, anything);
  visit("prompt_chunk", item.prompt_chunk, Need::optional, least_1_most_9007199254740991);
  visit("prompt_steps", item.prompt_steps, Need::optional, item_item_least_1_most_9007199254740991);
  visit("prefix_reuse", item.prefix_reuse, Need::optional, anything);
  visit("drafts", item.drafts, Need::optional, anything);
  visit("step_requests", item.step_requests, Need::optional, least_1_most_9007199254740991);
  visit("step_tokens", item.step_tokens, Need::optional, item_item_least_1_most_9007199254740991);
}

template <class Visitor>
void fields(Visitor& visit, Is<LibraryFunctions> auto& item) {
  visit.begin(Form::map, 2, "");
  visit("entries", item.entries, Need::required, shortest_1_item_item_least_1_most_9007199254740991);
  visit("weights", item.weights, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<LibraryOptions> auto& item) {
  visit.begin(Form::map, 3, "");
  visit("platform", item.platform, Need::required, pattern_is_platform);
  visit("needs", item.needs, Need::required, anything);
  visit("functions", item.functions, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<EngineSpec> auto& item) {
  visit.begin(Form::map, 6, "");
  visit("kind", item.kind, Need::required, anything);
  visit("provider", item.provider, Need::optional, anything);
  visit("threads", item.threads, Need::optional, most_9007199254740991);
  visit("options", item.options, Need::optional, anything);
  visit("library", item.library, Need::optional, anything);
  visit("chunked_prefill", item.chunked_prefill, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Memory> auto& item) {
  visit.begin(Form::map, 5, "");
  visit("budget_bytes", item.budget_bytes, Need::required, most_9007199254740991);
  visit("weights_bytes", item.weights_bytes, Need::required, most_9007199254740991);
  visit("state_bytes", item.state_bytes, Need::required, most_9007199254740991);
  visit("peak_bytes", item.peak_bytes, Need::required, most_9007199254740991);
  visit("mirror_bytes", item.mirror_bytes, Need::optional, most_9007199254740991);
}

template <class Visitor>
void fields(Visitor& visit, Is<Shared> auto& item) {
  visit.begin(Form::map, 2, "");
  visit("submodule", item.submodule, Need::required, most_9007199254740991);
  visit("devices", item.devices, Need::required, shortest_2_longest_2_item_pattern_is_device_name);
}

template <class Visitor>
void fields(Visitor& visit, Is<Overlap> auto& item) {
  visit.begin(Form::map, 3, "");
  visit("movable", item.movable, Need::required, item_most_9007199254740991);
  visit("unmovable", item.unmovable, Need::required, item_most_9007199254740991);
  visit("shared", item.shared, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<FileEntry> auto& item) {
  visit.begin(Form::map, 2, "");
  visit("sha256", item.sha256, Need::required, longest_64_pattern_is_sha256);
  visit("bytes", item.bytes, Need::required, most_9007199254740991);
}

template <class Visitor>
void fields(Visitor& visit, Is<Build> auto& item) {
  visit.begin(Form::map, 19, "");
  visit("format", item.format, Need::optional, one_of_partc_build_2);
  visit("plan_id", item.plan_id, Need::required, longest_64_pattern_is_sha256);
  visit("device", item.device, Need::required, pattern_is_device_name);
  visit("target", item.target, Need::required, anything);
  visit("model", item.model, Need::required, anything);
  visit("inputs", item.inputs, Need::required, anything);
  visit("outputs", item.outputs, Need::required, anything);
  visit("dims", item.dims, Need::required, item_least_1_most_9007199254740991);
  visit("values", item.values, Need::required, anything);
  visit("submodules", item.submodules, Need::required, anything);
  visit("engine", item.engine, Need::required, anything);
  visit("memory", item.memory, Need::required, anything);
  visit("overlap", item.overlap, Need::optional, anything);
  visit("limits", item.limits, Need::optional, anything);
  visit("survives", item.survives, Need::optional, item_pattern_is_device_name);
  visit("toolkit", item.toolkit, Need::required, anything);
  visit("verified_on_hardware", item.verified_on_hardware, Need::optional, anything);
  visit("files", item.files, Need::required, anything);
  visit("digest", item.digest, Need::required, longest_64_pattern_is_sha256);
}

Build read_build(const Value& value) { return read_struct<Build>(value, Source::json); }
Value write_build(const Build& item) { return to_value(item); }

}  // namespace build
}  // namespace partc
