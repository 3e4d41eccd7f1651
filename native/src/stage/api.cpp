// The C interface of a stage: arguments are held against what they must be, and errors become codes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <new>
#include <type_traits>

#include "errors.hpp"
#include "format/match.hpp"
#include "format/text.hpp"
#include "partc_stage.h"
#include "stage/stage.hpp"

using namespace partc;
using stage::misused;

/** A stage, and the texts that its descriptions point to. */
struct partc_stage {
  partc_stage(const std::string& folder, std::uint64_t threads) : inner(folder, threads) {
    for (const auto& [name, program] : inner.role().programs) phases.push_back(name.c_str());
    phases.push_back(nullptr);
  }

  stage::Stage inner;
  std::vector<const char*> phases;
};

namespace {

constexpr bool is_row(std::size_t number, std::string_view name) { return ELEMENT_TYPES.at(number).name == name; }
static_assert(ELEMENT_TYPES.size() == PARTC_STAGE_BOOL + 1);
static_assert(is_row(PARTC_STAGE_FLOAT64, "float64") && is_row(PARTC_STAGE_FLOAT32, "float32") &&
              is_row(PARTC_STAGE_FLOAT16, "float16") && is_row(PARTC_STAGE_BFLOAT16, "bfloat16") &&
              is_row(PARTC_STAGE_INT64, "int64") && is_row(PARTC_STAGE_INT32, "int32") &&
              is_row(PARTC_STAGE_INT16, "int16") && is_row(PARTC_STAGE_INT8, "int8") &&
              is_row(PARTC_STAGE_UINT64, "uint64") && is_row(PARTC_STAGE_UINT32, "uint32") &&
              is_row(PARTC_STAGE_UINT16, "uint16") && is_row(PARTC_STAGE_UINT8, "uint8") &&
              is_row(PARTC_STAGE_BOOL, "bool"));
static_assert(static_cast<int>(stage::Direction::given) == PARTC_STAGE_GIVEN &&
              static_cast<int>(stage::Direction::received) == PARTC_STAGE_RECEIVED &&
              static_cast<int>(stage::Direction::sent) == PARTC_STAGE_SENT &&
              static_cast<int>(stage::Direction::emitted) == PARTC_STAGE_EMITTED &&
              static_cast<int>(stage::Direction::logits) == PARTC_STAGE_LOGITS);

std::int32_t number_of(std::string_view dtype) {
  return static_cast<std::int32_t>(element_type(dtype) - ELEMENT_TYPES.data());
}

/** Fill in what the caller learns; the code. */
std::int32_t told(std::int32_t code, std::string_view text, partc_stage_error_t* error) {
  if (!error) return code;
  std::string whole = printable(std::string(text));
  while (whole.size() >= sizeof error->text) whole = shortened(whole, characters(whole) - 1 - whole.size() / 4096);
  error->code = code;
  std::memcpy(error->text, whole.c_str(), whole.size() + 1);
  return code;
}

std::int32_t code_of(const Error& error) {
  if (error.kind == ErrorKind::bundle) return PARTC_STAGE_BUNDLE;
  if (error.kind == ErrorKind::internal || error.cause == "bug") return PARTC_STAGE_BUG;
  return error.cause == "usage" ? PARTC_STAGE_USAGE : PARTC_STAGE_RUN;
}

/** What `work` answers; nothing that it throws leaves the library. */
template <class Work>
std::int32_t guarded(partc_stage_error_t* error, Work work) noexcept {
  if (error) *error = {};
  try {
    if constexpr (std::is_void_v<decltype(work())>) {
      work();
      return PARTC_STAGE_OK;
    } else {
      return work();
    }
  } catch (const Error& caught) {
    return told(code_of(caught), caught.what(), error);
  } catch (const std::bad_alloc&) {
    return told(PARTC_STAGE_MEMORY, "there is no memory for it", error);
  } catch (const std::exception& caught) {
    return told(PARTC_STAGE_BUG, caught.what(), error);
  } catch (...) {
    return told(PARTC_STAGE_BUG, "something unknown was thrown", error);
  }
}

/** The same, of functions that take a stage and pointers which must be there. */
template <class Work, class... Pointers>
std::int32_t guarded(partc_stage_error_t* error, Work work, const Pointers*... pointers) noexcept {
  return guarded(error, [&] {
    if (((pointers == nullptr) || ...)) throw misused("an argument is a null pointer");
    return work();
  });
}

std::uint64_t count_of(std::int64_t number, const char* name) {
  if (number >= 0) return static_cast<std::uint64_t>(number);
  throw misused(std::string(name) + " is " + std::to_string(number) + ", below 0");
}

/** A list of the caller. */
template <class T>
std::span<const T> list_of(const T* items, std::int64_t count, const char* name) {
  const std::uint64_t size = count_of(count, name);
  if (size && !items)
    throw misused(std::string(name) + " is " + std::to_string(count) + ", and the list a null pointer");
  return {items, size};
}

std::string text_of(const char* text, const char* name) {
  if (text) return text;
  throw misused(std::string(name) + " is a null pointer");
}

Dims dims_of(const partc_stage_size_t* sizes, std::int64_t count) {
  Dims dims;
  for (const partc_stage_size_t& each : list_of(sizes, count, "size_count"))
    dims.set(text_of(each.symbol, "symbol"), count_of(each.size, each.symbol));
  return dims;
}

messages::Sampling sampling_of(const partc_stage_sampling_t& given) {
  const bool fits = std::isfinite(given.temperature) && given.temperature >= 0 && given.top_p > 0 && given.top_p <= 1;
  if (!fits) throw misused("temperature must be 0 or more, top_p above 0 and at most 1");
  messages::Sampling sampling;
  sampling.temperature = given.temperature;
  sampling.top_k = count_of(given.top_k, "top_k");
  sampling.top_p = given.top_p;
  sampling.seed = given.seed;
  return sampling;
}

/** A step of the caller, as far as it can be told without its slots' requests. */
stage::Asked asked_of(const stage::Stage& inner, const partc_stage_step_t& step) {
  const std::uint64_t batch = count_of(step.batch, "batch"), sequence = count_of(step.sequence, "sequence");
  stage::Asked asked{text_of(step.phase, "phase"),
                     inner.dims_of(batch, sequence, dims_of(step.sizes, step.size_count)),
                     {},
                     {},
                     {},
                     {}};
  inner.ports(asked.phase);
  for (const std::int64_t slot : list_of(step.slots, step.slot_count, "slot_count"))
    asked.slots.push_back(count_of(slot, "a slot"));
  if (asked.slots.size() != 1 && asked.slots.size() != batch)
    throw misused(std::to_string(asked.slots.size()) + " slots; a step has one, or one of each of its " +
                  std::to_string(batch) + " rows");
  for (const std::uint64_t slot : asked.slots)
    if (slot >= inner.role().model().max_requests) throw misused("there is no slot " + std::to_string(slot));
  for (std::size_t at = 0; at < asked.slots.size(); ++at)
    asked.sampling.push_back(step.sampling ? sampling_of(step.sampling[at]) : messages::Sampling());
  if (!inner.role().has_step_inputs()) return asked;
  for (const std::int64_t each : list_of(step.position, step.batch, "batch"))
    asked.position.push_back(count_of(each, "a position"));
  for (std::size_t row = 0; row < batch; ++row)
    asked.length.push_back(step.length ? count_of(step.length[row], "a length") : sequence);
  return asked;
}

const ElementType& type_of(std::int32_t dtype, const std::string& name) {
  if (dtype >= 0 && static_cast<std::size_t>(dtype) < ELEMENT_TYPES.size())
    return ELEMENT_TYPES[static_cast<std::size_t>(dtype)];
  throw misused(in_quotes(name) + ": there is no element type " + std::to_string(dtype));
}

void check_place(const void* data, std::uint64_t bytes, const ElementType& type, const std::string& name) {
  if (bytes && !data) throw misused(in_quotes(name) + " is a null pointer");
  if (reinterpret_cast<std::uintptr_t>(data) % type.bytes)
    throw misused(in_quotes(name) + " lies at an address that is no multiple of " + std::to_string(type.bytes));
}

/** Tensors over memory of the caller. */
Tensors inputs_of(const stage::Stage& inner, const stage::Asked& asked, std::span<const partc_stage_tensor_t> given) {
  Tensors inputs;
  for (const partc_stage_tensor_t& each : given) {
    const std::string name = text_of(each.name, "the name of an input");
    const ElementType& type = type_of(each.dtype, name);
    const std::uint64_t bytes = count_of(each.bytes, "bytes");
    check_place(each.data, bytes, type, name);
    if (inputs.contains(name)) throw misused(in_quotes(name) + " is given twice");
    inputs.set(name, {&type, inner.shape_of(asked, name), {nullptr, static_cast<const std::byte*>(each.data), bytes}});
  }
  return inputs;
}

std::vector<stage::Output> outputs_of(std::span<partc_stage_tensor_t> wanted) {
  std::vector<stage::Output> outputs;
  for (const partc_stage_tensor_t& each : wanted) {
    const std::string name = text_of(each.name, "the name of an output");
    const ElementType& type = type_of(each.dtype, name);
    const std::uint64_t bytes = count_of(each.bytes, "bytes");
    check_place(each.data, bytes, type, name);
    outputs.push_back({name, &type, {static_cast<std::byte*>(each.data), bytes}});
  }
  return outputs;
}

const stage::HeldState& state_at(const stage::Stage& inner, std::int64_t index) {
  const auto& states = inner.states();
  if (index >= 0 && static_cast<std::size_t>(index) < states.size()) return states[static_cast<std::size_t>(index)];
  throw misused("there is no state " + std::to_string(index) + "; this stage has " + std::to_string(states.size()));
}

/** Rows of a state in memory of the caller, which must have their size. */
Tensor rows_at(const stage::HeldState& state, std::int64_t begin, std::int64_t end, const void* data,
               std::int64_t bytes) {
  const ElementType* type = element_type(state.declared->dtype);
  const std::uint64_t first = count_of(begin, "begin"), behind = count_of(end, "end");
  if (first > behind || behind > state.rows[0])
    throw misused("rows " + std::to_string(begin) + " to " + std::to_string(end) + " are none of the " +
                  std::to_string(state.rows[0]) + " of " + in_quotes(state.declared->name));
  const Shape shape{behind - first, state.rows[1], state.rows[2]};
  const std::uint64_t needed = bytes_of(shape, type->bytes), given = count_of(bytes, "bytes");
  if (given != needed)
    throw misused("these rows have " + std::to_string(needed) + " bytes, not " + std::to_string(given));
  check_place(data, given, *type, state.declared->name);
  return {type, shape, {nullptr, static_cast<const std::byte*>(data), given}};
}

}  // namespace

uint32_t partc_stage_abi(void) { return PARTC_STAGE_ABI; }

int32_t partc_stage_open(const char* folder, int32_t threads, partc_stage_t** stage, partc_stage_error_t* error) {
  if (stage) *stage = nullptr;
  return guarded(
      error, [&] { *stage = new partc_stage(folder, count_of(threads, "threads")); }, folder, stage);
}

void partc_stage_close(partc_stage_t* stage) { delete stage; }

int32_t partc_stage_describe(const partc_stage_t* stage, partc_stage_facts_t* facts, partc_stage_error_t* error) {
  const auto describe = [&] {
    const Role& role = stage->inner.role();
    const build::Model& model = role.model();
    *facts = {role.device().c_str(),
              role.source().c_str(),
              model.name.c_str(),
              model.task.c_str(),
              role.build->target.c_str(),
              role.build->plan_id.c_str(),
              role.placement.placement_id.c_str(),
              stage->phases.data(),
              static_cast<int64_t>(model.max_requests),
              static_cast<int64_t>(model.max_batch),
              static_cast<int64_t>(model.max_sequence),
              static_cast<int64_t>(model.vocab_size.value_or(0)),
              static_cast<int64_t>(model.step_requests),
              static_cast<int64_t>(stage->inner.states().size())};
  };
  return guarded(error, describe, stage, facts);
}

int32_t partc_stage_value(const partc_stage_t* stage, const char* phase, int64_t index, partc_stage_value_t* value,
                          partc_stage_error_t* error) {
  const auto find = [&]() -> std::int32_t {
    const std::vector<stage::Port>& ports = stage->inner.ports(phase);
    const std::uint64_t number = count_of(index, "index");
    if (number >= ports.size()) return PARTC_STAGE_MORE;
    const stage::Port& port = ports[number];
    *value = {port.name.c_str(),           port.peer.c_str(), static_cast<int32_t>(port.direction),
              number_of(port.type->dtype), port.message,      port.order};
    return PARTC_STAGE_OK;
  };
  return guarded(error, find, stage, phase, value);
}

int32_t partc_stage_state(const partc_stage_t* stage, int64_t index, partc_stage_state_t* state,
                          partc_stage_error_t* error) {
  const auto find = [&] {
    const stage::HeldState& held = state_at(stage->inner, index);
    *state = {held.submodule.c_str(),
              held.declared->name.c_str(),
              number_of(held.declared->dtype),
              build::is_rewritten(*held.declared),
              static_cast<int64_t>(held.rows[0]),
              static_cast<int64_t>(held.rows[1]),
              static_cast<int64_t>(held.rows[2])};
  };
  return guarded(error, find, stage, state);
}

int32_t partc_stage_shape(const partc_stage_t* stage, const partc_stage_step_t* step, const char* value, int64_t* shape,
                          int32_t* rank, partc_stage_error_t* error) {
  const auto find = [&] {
    const Shape found = stage->inner.shape_of(asked_of(stage->inner, *step), value);
    if (found.size() > PARTC_STAGE_AXES)
      throw misused(in_quotes(value) + " has " + std::to_string(found.size()) + " axes");
    std::ranges::transform(found, shape, [](std::uint64_t size) { return static_cast<int64_t>(size); });
    *rank = static_cast<int32_t>(found.size());
  };
  return guarded(error, find, stage, step, value, shape, rank);
}

int32_t partc_stage_reset(partc_stage_t* stage, int64_t slot, int64_t batch, const partc_stage_size_t* sizes,
                          int64_t size_count, partc_stage_error_t* error) {
  const auto reset = [&] {
    stage->inner.reset(count_of(slot, "slot"), count_of(batch, "batch"), dims_of(sizes, size_count));
  };
  return guarded(error, reset, stage);
}

int32_t partc_stage_step(partc_stage_t* stage, const partc_stage_step_t* step, const partc_stage_tensor_t* inputs,
                         int64_t input_count, partc_stage_tensor_t* outputs, int64_t output_count,
                         partc_stage_error_t* error) {
  const auto compute = [&]() -> std::int32_t {
    const std::uint64_t wanted = list_of(outputs, output_count, "output_count").size();
    for (std::size_t at = 0; at < wanted; ++at) outputs[at].is_made = 0;
    const stage::Asked asked = asked_of(stage->inner, *step);
    Tensors given = inputs_of(stage->inner, asked, list_of(inputs, input_count, "input_count"));
    std::vector<stage::Output> made = outputs_of({outputs, wanted});
    const auto awaited = stage->inner.step(asked, std::move(given), made);
    for (std::size_t at = 0; at < wanted; ++at) outputs[at].is_made = made[at].is_made;
    if (!awaited) return PARTC_STAGE_OK;
    const std::string message = joined(awaited->values, ", ") + " from " + awaited->device;
    return told(PARTC_STAGE_MORE, "the step waits for " + message, error);
  };
  return guarded(error, compute, stage, step);
}

int32_t partc_stage_read_rows(partc_stage_t* stage, int64_t slot, int64_t state, int64_t row, int64_t begin,
                              int64_t end, void* data, int64_t bytes, partc_stage_error_t* error) {
  const auto read = [&] {
    const stage::HeldState& held = state_at(stage->inner, state);
    rows_at(held, begin, end, data, bytes);
    const Tensor rows = stage->inner.read_rows(count_of(slot, "slot"), held, count_of(row, "row"),
                                               count_of(begin, "begin"), count_of(end, "end"));
    if (rows.bytes.size) std::memcpy(data, rows.bytes.data, rows.bytes.size);
  };
  return guarded(error, read, stage);
}

int32_t partc_stage_write_rows(partc_stage_t* stage, int64_t slot, int64_t state, int64_t row, int64_t begin,
                               int64_t end, const void* data, int64_t bytes, partc_stage_error_t* error) {
  const auto write = [&] {
    const stage::HeldState& held = state_at(stage->inner, state);
    const Tensor rows = rows_at(held, begin, end, data, bytes);
    stage->inner.write_rows(count_of(slot, "slot"), held, count_of(row, "row"), count_of(begin, "begin"), rows);
  };
  return guarded(error, write, stage);
}

int32_t partc_stage_settle(partc_stage_t* stage, partc_stage_error_t* error) {
  const auto settle = [&]() -> std::int32_t { return stage->inner.settle() ? PARTC_STAGE_MORE : PARTC_STAGE_OK; };
  return guarded(error, settle, stage);
}
