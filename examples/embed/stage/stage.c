/* Stages of a cut model from C99: no partc, no Python.
 *
 *   stage one FOLDER IDS FILE           the values that the source's stage sends in its first step, into FILE
 *   stage chain IDS COUNT FOLDER ...    COUNT tokens behind the prompt IDS, by the stages of all devices
 *
 * IDS is "1,2,3".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partc_stage.h"

enum { MOST_STAGES = 16, MOST_VALUES = 64, MOST_IDS = 4096 };

/* Bytes of the element types, by their numbers. */
static const int64_t kWidths[] = {8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1};

/* A value that has been made or given in the step under way. */
typedef struct {
  const char* name;
  void* data;
  int64_t bytes;
} Made;

/* A device, and what the step under way has brought it. */
typedef struct {
  partc_stage_t* stage;
  char is_given[MOST_VALUES];
  int is_over;
} Device;

static void fail(const char* text) {
  fprintf(stderr, "%s\n", text);
  exit(1);
}

static int32_t checked(int32_t code, const partc_stage_error_t* error) {
  if (code < 0) fail(error->text);
  return code;
}

/* The values of a phase; their number. */
static int values_of(const partc_stage_t* stage, const char* phase, partc_stage_value_t* values) {
  partc_stage_error_t error;
  for (int count = 0; count < MOST_VALUES; ++count)
    if (checked(partc_stage_value(stage, phase, count, &values[count], &error), &error) == PARTC_STAGE_MORE)
      return count;
  fail("more values than this example has room for");
  return 0;
}

static int64_t bytes_of(const partc_stage_t* stage, const partc_stage_step_t* step, const partc_stage_value_t* value) {
  partc_stage_error_t error;
  int64_t shape[PARTC_STAGE_AXES], bytes = kWidths[value->dtype];
  int32_t rank;
  checked(partc_stage_shape(stage, step, value->name, shape, &rank, &error), &error);
  for (int32_t axis = 0; axis < rank; ++axis) bytes *= shape[axis];
  return bytes;
}

static const Made* found(const Made* made, int count, const char* name) {
  for (int at = 0; at < count; ++at)
    if (strcmp(made[at].name, name) == 0) return &made[at];
  return NULL;
}

static void* room_for(int64_t bytes) {
  void* data = malloc(bytes > 0 ? (size_t)bytes : 1);
  if (data == NULL) fail("no memory");
  return data;
}

/* Whether all values of the message of an input are there. */
static int has_come(const partc_stage_value_t* values, int count, int at, const Made* made, int made_count) {
  for (int each = 0; each < count; ++each) {
    const int is_of_it = each == at || (values[at].message >= 0 && values[each].message == values[at].message);
    if (is_of_it && !found(made, made_count, values[each].name)) return 0;
  }
  return 1;
}

/* Let a device compute as far as what was made reaches; what it makes is added. */
static void go_on(Device* device, const partc_stage_step_t* step, Made* made, int* made_count) {
  partc_stage_value_t values[MOST_VALUES];
  partc_stage_tensor_t inputs[MOST_VALUES], outputs[MOST_VALUES];
  partc_stage_error_t error;
  const int count = values_of(device->stage, step->phase, values);
  int given = 0, wanted = 0;
  for (int at = 0; at < count; ++at) {
    const partc_stage_value_t* value = &values[at];
    if (value->direction >= PARTC_STAGE_SENT) {
      const int64_t bytes = bytes_of(device->stage, step, value);
      const partc_stage_tensor_t output = {value->name, room_for(bytes), bytes, value->dtype, 0};
      outputs[wanted++] = output;
    } else if (!device->is_given[at] && has_come(values, count, at, made, *made_count)) {
      const Made* known = found(made, *made_count, value->name);
      const partc_stage_tensor_t input = {value->name, known->data, known->bytes, value->dtype, 0};
      inputs[given++] = input;
      device->is_given[at] = 1;
    }
  }
  device->is_over =
      checked(partc_stage_step(device->stage, step, inputs, given, outputs, wanted, &error), &error) == PARTC_STAGE_OK;
  for (int at = 0; at < wanted; ++at) {
    const Made made_here = {outputs[at].name, outputs[at].data, outputs[at].bytes};
    if (!outputs[at].is_made || found(made, *made_count, outputs[at].name)) {
      free(outputs[at].data);
    } else if (*made_count == MOST_VALUES) {
      fail("more values than this example has room for");
    } else {
      made[(*made_count)++] = made_here;
    }
  }
}

/* The value that the source hands to its client. */
static int64_t emitted(const Device* devices, int count, const char* phase, const Made* made, int made_count) {
  partc_stage_value_t values[MOST_VALUES];
  for (int device = 0; device < count; ++device) {
    const int found_values = values_of(devices[device].stage, phase, values);
    for (int at = 0; at < found_values; ++at)
      if (values[at].direction == PARTC_STAGE_EMITTED)
        return *(const int64_t*)found(made, made_count, values[at].name)->data;
  }
  fail("no stage emits a token");
  return 0;
}

static partc_stage_step_t step_of(const char* phase, int64_t sequence, const int64_t* position) {
  static const int64_t slot = 0;
  const partc_stage_step_t step = {phase, 1, sequence, position, NULL, &slot, 1, NULL, NULL, 0};
  return step;
}

/* How many values all devices were given in this step. */
static int given(const Device* devices, int count) {
  int sum = 0;
  for (int at = 0; at < count; ++at)
    for (int value = 0; value < MOST_VALUES; ++value) sum += devices[at].is_given[value] != 0;
  return sum;
}

/* The token that a step of all devices brings: values go to whoever waits for them, as soon as they are there. */
static int64_t step_of_ring(Device* devices, int count, const partc_stage_step_t* step, int64_t* ids) {
  Made made[MOST_VALUES] = {{"input_ids", ids, step->sequence * (int64_t)sizeof *ids}};
  int made_count = 1, left = count, before;
  for (int at = 0; at < count; ++at) {
    memset(devices[at].is_given, 0, sizeof devices[at].is_given);
    devices[at].is_over = 0;
  }
  do {
    before = made_count + given(devices, count) - left;
    left = 0;
    for (int at = 0; at < count; ++at) {
      if (!devices[at].is_over) go_on(&devices[at], step, made, &made_count);
      left += !devices[at].is_over;
    }
  } while (left > 0 && made_count + given(devices, count) - left != before);
  if (left > 0) fail("a value comes from nowhere: name the folders of all devices, each once");
  const int64_t token = emitted(devices, count, step->phase, made, made_count);
  for (int at = 1; at < made_count; ++at) free(made[at].data);
  return token;
}

static partc_stage_t* opened(const char* folder) {
  partc_stage_t* stage;
  partc_stage_error_t error;
  checked(partc_stage_open(folder, 0, &stage, &error), &error);
  checked(partc_stage_reset(stage, 0, 1, NULL, 0, &error), &error);
  return stage;
}

static int64_t read_ids(const char* text, int64_t* ids) {
  int64_t count = 0;
  char* end;
  for (;; text = end + 1) {
    if (count == MOST_IDS) fail("more IDS than this example has room for");
    ids[count++] = strtoll(text, &end, 10);
    if (end == text || (*end != ',' && *end != 0)) fail("IDS are whole numbers with commas between them");
    if (*end == 0) return count;
  }
}

/* The values that the source's stage sends in the step of a prompt. */
static void one(const char* folder, const char* text, const char* path) {
  static int64_t ids[MOST_IDS];
  static const int64_t position = 0;
  partc_stage_value_t values[MOST_VALUES];
  const partc_stage_step_t step = step_of("prefill", read_ids(text, ids), &position);
  Device device = {opened(folder), {0}, 0};
  Made made[MOST_VALUES] = {{"input_ids", ids, step.sequence * (int64_t)sizeof *ids}};
  int made_count = 1;
  go_on(&device, &step, made, &made_count);
  const int count = values_of(device.stage, "prefill", values);
  FILE* file = fopen(path, "wb");
  if (file == NULL) fail("FILE cannot be written");
  for (int at = 0; at < count; ++at) {
    const Made* value = found(made, made_count, values[at].name);
    if (values[at].direction == PARTC_STAGE_SENT && value) fwrite(value->data, 1, (size_t)value->bytes, file);
  }
  if (fclose(file)) fail("FILE cannot be written");
  for (int at = 1; at < made_count; ++at) free(made[at].data);
  partc_stage_close(device.stage);
}

static void chain(const char* text, int64_t wanted, char** folders, int count) {
  static int64_t ids[MOST_IDS];
  Device devices[MOST_STAGES] = {{NULL, {0}, 0}};
  if (count > MOST_STAGES) fail("more stages than this example has room for");
  for (int at = 0; at < count; ++at) devices[at].stage = opened(folders[at]);
  int64_t position = 0, sequence = read_ids(text, ids);
  for (int64_t made = 0; made < wanted; ++made) {
    const partc_stage_step_t step = step_of(made ? "decode" : "prefill", sequence, &position);
    ids[0] = step_of_ring(devices, count, &step, ids);
    printf("%" PRId64 "%s", ids[0], made + 1 < wanted ? " " : "\n");
    position += sequence;
    sequence = 1;
  }
  for (int at = 0; at < count; ++at) partc_stage_close(devices[at].stage);
}

int main(int count, char** words) {
  if (partc_stage_abi() != PARTC_STAGE_ABI) fail("the library is of another version than this program");
  if (count == 5 && strcmp(words[1], "one") == 0) {
    one(words[2], words[3], words[4]);
  } else if (count >= 5 && strcmp(words[1], "chain") == 0) {
    chain(words[2], strtoll(words[3], NULL, 10), words + 4, count - 4);
  } else {
    fprintf(stderr, "usage: stage one FOLDER IDS FILE | stage chain IDS COUNT FOLDER ...\n");
    return 2;
  }
  return 0;
}
