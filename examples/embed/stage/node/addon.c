/* partc_stage.h for Node, by N-API: stage.mjs says what each function takes. `make` builds it beside the library. */
#include <node_api.h>
#include <stdlib.h>
#include <string.h>

#include "partc_stage.h"

enum { MOST_TENSORS = 64, MOST_NAME = 200 };

/* A function of Node's that cannot fail here, where arguments are as stage.mjs gives them. */
#define SURE(call)                                                                               \
  do {                                                                                           \
    if ((call) != napi_ok) napi_fatal_error("addon", NAPI_AUTO_LENGTH, #call, NAPI_AUTO_LENGTH); \
  } while (0)

static napi_value failed(napi_env env, const char* text) {
  napi_throw_error(env, NULL, text);
  return NULL;
}

static void arguments(napi_env env, napi_callback_info info, size_t count, napi_value* values) {
  size_t given = count;
  SURE(napi_get_cb_info(env, info, &given, values, NULL, NULL));
}

static partc_stage_t* stage_of(napi_env env, napi_value value) {
  void* stage;
  SURE(napi_get_value_external(env, value, &stage));
  return *(partc_stage_t**)stage;
}

static int64_t number_of(napi_env env, napi_value value) {
  int64_t number;
  SURE(napi_get_value_int64(env, value, &number));
  return number;
}

static void text_of(napi_env env, napi_value value, char* text, size_t room) {
  SURE(napi_get_value_string_utf8(env, value, text, room, NULL));
}

static napi_value item(napi_env env, napi_value object, const char* name) {
  napi_value found;
  SURE(napi_get_named_property(env, object, name, &found));
  return found;
}

static void set_number(napi_env env, napi_value object, const char* name, int64_t number) {
  napi_value value;
  SURE(napi_create_int64(env, number, &value));
  SURE(napi_set_named_property(env, object, name, value));
}

static void set_text(napi_env env, napi_value object, const char* name, const char* text) {
  napi_value value;
  SURE(napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &value));
  SURE(napi_set_named_property(env, object, name, value));
}

static void forget(napi_env env, void* held, void* hint) {
  (void)env;
  (void)hint;
  partc_stage_close(*(partc_stage_t**)held);
  free(held);
}

/* open(folder, threads) → stage */
static napi_value open_stage(napi_env env, napi_callback_info info) {
  napi_value values[2], found;
  char folder[4096];
  partc_stage_error_t error;
  arguments(env, info, 2, values);
  text_of(env, values[0], folder, sizeof folder);
  partc_stage_t** held = malloc(sizeof *held);
  if (!held) return failed(env, "no memory");
  if (partc_stage_open(folder, (int32_t)number_of(env, values[1]), held, &error) < 0) {
    free(held);
    return failed(env, error.text);
  }
  SURE(napi_create_external(env, held, forget, NULL, &found));
  return found;
}

/* values(stage, phase) → [{name, peer, direction, dtype, message}, …] */
static napi_value values_of(napi_env env, napi_callback_info info) {
  napi_value values[2], found, each;
  char phase[MOST_NAME];
  partc_stage_value_t value;
  partc_stage_error_t error;
  arguments(env, info, 2, values);
  text_of(env, values[1], phase, sizeof phase);
  SURE(napi_create_array(env, &found));
  for (uint32_t at = 0;; ++at) {
    const int32_t code = partc_stage_value(stage_of(env, values[0]), phase, at, &value, &error);
    if (code < 0) return failed(env, error.text);
    if (code == PARTC_STAGE_MORE) return found;
    SURE(napi_create_object(env, &each));
    set_text(env, each, "name", value.name);
    set_text(env, each, "peer", value.peer);
    set_number(env, each, "direction", value.direction);
    set_number(env, each, "dtype", value.dtype);
    set_number(env, each, "message", value.message);
    SURE(napi_set_element(env, found, at, each));
  }
}

/* A step {phase, sequence, position} of one sequence in slot 0. */
typedef struct {
  char phase[MOST_NAME];
  int64_t position, slot;
  partc_stage_step_t step;
} Step;

static void read_step(napi_env env, napi_value value, Step* held) {
  text_of(env, item(env, value, "phase"), held->phase, sizeof held->phase);
  held->position = number_of(env, item(env, value, "position"));
  held->slot = 0;
  const int64_t sequence = number_of(env, item(env, value, "sequence"));
  const partc_stage_step_t step = {held->phase, 1, sequence, &held->position, NULL, &held->slot, 1, NULL, NULL, 0};
  held->step = step;
}

/* shape(stage, step, name) → [size, …] */
static napi_value shape_of(napi_env env, napi_callback_info info) {
  napi_value values[3], found, size;
  char name[MOST_NAME];
  int64_t shape[PARTC_STAGE_AXES];
  int32_t rank;
  Step step;
  partc_stage_error_t error;
  arguments(env, info, 3, values);
  read_step(env, values[1], &step);
  text_of(env, values[2], name, sizeof name);
  if (partc_stage_shape(stage_of(env, values[0]), &step.step, name, shape, &rank, &error) < 0)
    return failed(env, error.text);
  SURE(napi_create_array(env, &found));
  for (int32_t axis = 0; axis < rank; ++axis) {
    SURE(napi_create_int64(env, shape[axis], &size));
    SURE(napi_set_element(env, found, (uint32_t)axis, size));
  }
  return found;
}

/* reset(stage, batch) */
static napi_value reset(napi_env env, napi_callback_info info) {
  napi_value values[2];
  partc_stage_error_t error;
  arguments(env, info, 2, values);
  const int32_t code = partc_stage_reset(stage_of(env, values[0]), 0, number_of(env, values[1]), NULL, 0, &error);
  return code < 0 ? failed(env, error.text) : NULL;
}

/* Tensors [{name, dtype, data}, …] over the memory of their ArrayBuffers; their number. */
static int64_t tensors_of(napi_env env, napi_value list, partc_stage_tensor_t* tensors, char (*names)[MOST_NAME]) {
  uint32_t count;
  SURE(napi_get_array_length(env, list, &count));
  if (count > MOST_TENSORS) return -1;
  for (uint32_t at = 0; at < count; ++at) {
    napi_value each;
    size_t bytes;
    SURE(napi_get_element(env, list, at, &each));
    text_of(env, item(env, each, "name"), names[at], MOST_NAME);
    SURE(napi_get_arraybuffer_info(env, item(env, each, "data"), &tensors[at].data, &bytes));
    tensors[at].name = names[at];
    tensors[at].bytes = (int64_t)bytes;
    tensors[at].dtype = (int32_t)number_of(env, item(env, each, "dtype"));
    tensors[at].is_made = 0;
  }
  return count;
}

/* step(stage, step, inputs, outputs) → whether it is over; `is_made` of the outputs is set */
static napi_value compute(napi_env env, napi_callback_info info) {
  napi_value values[4], each, is_over;
  partc_stage_tensor_t inputs[MOST_TENSORS], outputs[MOST_TENSORS];
  char input_names[MOST_TENSORS][MOST_NAME], output_names[MOST_TENSORS][MOST_NAME];
  Step step;
  partc_stage_error_t error;
  arguments(env, info, 4, values);
  read_step(env, values[1], &step);
  const int64_t given = tensors_of(env, values[2], inputs, input_names);
  const int64_t wanted = tensors_of(env, values[3], outputs, output_names);
  if (given < 0 || wanted < 0) return failed(env, "more tensors than this addon has room for");
  const int32_t code = partc_stage_step(stage_of(env, values[0]), &step.step, inputs, given, outputs, wanted, &error);
  if (code < 0) return failed(env, error.text);
  for (uint32_t at = 0; at < wanted; ++at) {
    SURE(napi_get_element(env, values[3], at, &each));
    set_number(env, each, "is_made", outputs[at].is_made);
  }
  SURE(napi_get_boolean(env, code == PARTC_STAGE_OK, &is_over));
  return is_over;
}

static napi_value begin(napi_env env, napi_value exports) {
  static const napi_property_descriptor functions[] = {
      {"open", NULL, open_stage, NULL, NULL, NULL, napi_enumerable, NULL},
      {"values", NULL, values_of, NULL, NULL, NULL, napi_enumerable, NULL},
      {"shape", NULL, shape_of, NULL, NULL, NULL, napi_enumerable, NULL},
      {"reset", NULL, reset, NULL, NULL, NULL, napi_enumerable, NULL},
      {"step", NULL, compute, NULL, NULL, NULL, napi_enumerable, NULL},
  };
  if (partc_stage_abi() != PARTC_STAGE_ABI) return failed(env, "the library is of another version than this addon");
  SURE(napi_define_properties(env, exports, sizeof functions / sizeof *functions, functions));
  return exports;
}

NAPI_MODULE(partc_stage, begin)
