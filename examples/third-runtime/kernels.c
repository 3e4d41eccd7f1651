#include "kernels.h"

#include <dlfcn.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, PAGE = 4096, MOST = 64, STATES = 1024 };

typedef struct {  // DLPack's DLTensor
  void* data;
  int32_t device, device_number, axes;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides;
  uint64_t offset;
} Tensor;
typedef struct {
  int32_t type, padding;
  const Tensor* tensor;
} Argument;
typedef struct {
  void* kernel;
  const Argument* arguments;
  int64_t count;
} Call;
typedef struct {  // a state of all slots
  uint8_t* memory;
  size_t stride;  // bytes of one slot
} State;
typedef struct Function {  // a function of a sub-module, bound to the states of a slot
  struct Function* next;
  const json_t* submodule;
  Dims dims;
  uint64_t slot;
  Call* calls;
  int64_t count;
  void *inputs[MOST], *outputs[MOST];
} Function;

static json_t *plan, *weights;  // `weights`: name → address
static void* library;
static int64_t (*run)(const Call*, int64_t);
static uint8_t *arena, **constants;
static State states[MOST][STATES];
static Function* functions;

static void* aligned(size_t bytes) {
  void* memory = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
  if (!memory) die("there is not enough memory");
  return memset(memory, 0, bytes);
}

static void* find(const char* prefix, const char* name) {
  char symbol[512];
  snprintf(symbol, sizeof symbol, "%s%s", prefix, name);
  void* found = dlsym(library, symbol);
  if (!found) die("library.so: has no %s", symbol);
  return found;
}

static void read_weights(const char* file) {  // safetensors: the length of a JSON header, the header, the data
  size_t size;
  uint64_t head;
  const char* name;
  char* bytes = read_file(file, &size);
  json_t *tensors = json_loadb(bytes + 8, *(uint64_t*)memcpy(&head, bytes, 8), 0, NULL), *tensor;
  json_object_foreach(tensors, name, tensor) {
    const json_t* offsets = sub(tensor, "data_offsets");  // none: __metadata__
    const size_t from = (size_t)num_at(offsets, 0), length = (size_t)num_at(offsets, 1) - from;
    void* copy = memcpy(aligned(length), bytes + 8 + head + from, length);
    json_object_set_new(weights, name, json_integer((intptr_t)copy));
  }
  json_decref(tensors), free(bytes);
}

static State make_state(const json_t* state) {
  size_t bytes = width(txt(state, "dtype")) * (size_t)limit("max_batch"), i;
  json_t* axis;
  json_array_foreach(sub(state, "shape"), i, axis) {
    const size_t size = (size_t)extent(axis, (Dims){1, num(sub(build, "dims"), "sequence")});
    bytes *= i == 2 && is(state, "layout", "panels") ? (size + 15) / 16 * 16 : size;  // 16 positions lie side by side
  }
  bytes = (bytes + PAGE - 1) / PAGE * PAGE;
  void* memory = mmap(NULL, bytes * (size_t)limit("max_requests"), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) die("there is not enough memory for the states");
  return (State){memory, bytes};
}

static void check_processor(void) {
  static char line[1 << 16];  // " avx avx2 … ", the features of the first processor
  FILE* file = fopen("/proc/cpuinfo", "r");
  while (file && fgets(line, sizeof line - 1, file) && strncmp(line, "flags", 5) && strncmp(line, "Features", 8))
    *line = 0;
  if (file) fclose(file);
  line[strcspn(line, "\n")] = ' ';
  size_t i;
  json_t* need;
  json_array_foreach(sub(sub(sub(build, "engine"), "library"), "needs"), i, need) {
    char word[64];
    snprintf(word, sizeof word, " %s ", json_string_value(need));
    if (strlen(line) > 1 && !strstr(line, word)) die("library.so: uses%sand this processor lacks it", word);
  }
}

void open_kernels(void) {
  size_t size, i, k, largest = 0;
  json_t *item, *part;
  const char* name;
  char path[4096], *bytes = read_file("kernels.json", &size);
  if (!is(sub(build, "engine"), "kind", "plan")) die("%s: is not of `target: tvm` for a processor", folder);
  check_processor();
  plan = json_loadb(bytes, size, 0, NULL);
  free(bytes), free(read_file("library.so", &size));  // checked: a library runs code as soon as it is loaded
  snprintf(path, sizeof path, "%s%s/library.so", strchr(folder, '/') ? "" : "./", folder);
  if (!(library = dlopen(path, RTLD_NOW))) die("%s", dlerror());
  *(void**)&run = find("partc_", "run");
  json_object_foreach(sub(plan, "functions"), name, item) if ((size_t)num(item, "arena_bytes") > largest) largest =
      (size_t)num(item, "arena_bytes");
  arena = aligned(largest);
  constants = calloc(json_array_size(sub(plan, "constants")) + 1, sizeof *constants);
  json_array_foreach(sub(plan, "constants"), i, item) {
    const char* data = txt(item, "data");
    constants[i] = aligned(size = strlen(data));
    sodium_base642bin(constants[i], size, data, size, NULL, NULL, NULL, sodium_base64_VARIANT_ORIGINAL);
  }
  weights = json_object();
  json_array_foreach(sub(build, "submodules"), i, item) {
    if (i == MOST || json_array_size(sub(item, "states")) >= STATES) die("build.json: is too large for this runtime");
    json_array_foreach(sub(item, "states"), k, part) states[i][k] = make_state(part);
    json_array_foreach(sub(item, "weights"), k, part) read_weights(json_string_value(part));
  }
}

void reset_states(uint64_t slot) {
  for (int i = 0; i < MOST; ++i)
    for (State* state = states[i]; state->memory; ++state)  // zeros, once somebody reads them
      madvise(state->memory + slot * state->stride, state->stride, MADV_DONTNEED);
}

bool rewrites_states(void) {
  size_t i, k;
  json_t *submodule, *state;
  json_array_foreach(sub(build, "submodules"), i, submodule)
      json_array_foreach(sub(submodule, "states"), k, state) if (is(state, "kind", "whole")) return true;
  return false;
}

// ---- functions

static void* address(const json_t* place, void* const* parameters) {
  const int64_t where = num_at(place, 1);
  const char room = *txt_at(place, 0);  // arena, constant, parameter
  return room == 'a' ? arena + where : room == 'c' ? constants[where] : parameters[where];
}

static Argument argument(const json_t* kind, void* data) {
  const char* dtype = txt(kind, "dtype");
  const uint8_t code = dtype[0] == 'i' ? 0 : dtype[0] == 'u' ? 1 : dtype[0] == 'f' ? 2 : dtype[1] == 'f' ? 4 : 6;
  const json_t* shape = sub(kind, "shape");
  int64_t* sizes = calloc(json_array_size(shape) + 1, sizeof *sizes);
  for (size_t i = 0; i < json_array_size(shape); ++i) sizes[i] = num_at(shape, i);
  Tensor* tensor = malloc(sizeof *tensor);
  *tensor = (Tensor){data, 1, 0, (int32_t)json_array_size(shape), code, (uint8_t)(8 * width(dtype)), 1, sizes, NULL, 0};
  return (Argument){7, 0, tensor};
}

static const json_t* facts_of(const json_t* submodule) {
  return sub(sub(sub(sub(build, "engine"), "library"), "functions"), txt(submodule, "name"));
}

// The function of these sizes for a slot. Its tables are made once for all steps.
static Function* function(const State* own, const json_t* submodule, Dims dims, uint64_t slot) {
  for (Function* made = functions; made; made = made->next)
    if (made->submodule == submodule && made->slot == slot && !memcmp(&made->dims, &dims, sizeof dims)) return made;
  Function* made = calloc(1, sizeof *made);
  void *parameters[4096], **to = parameters;
  char name[512];
  size_t i, k;
  json_t *item, *call;
  json_array_foreach(sub(submodule, "inputs"), i, item)* to++ = made->inputs[i] =
      aligned(bytes_of(type_of(json_string_value(item)), dims));
  for (; own->memory; ++own) *to++ = own->memory + slot * own->stride;
  json_array_foreach(sub(facts_of(submodule), "weights"), i, item)* to++ =
      (void*)(intptr_t)num(weights, json_string_value(item));
  snprintf(name, sizeof name, "%s_b%d_s%d", txt(submodule, "name"), (int)dims.batch, (int)dims.sequence);
  const json_t* source = sub(sub(plan, "functions"), name);
  made->calls = calloc(json_array_size(sub(source, "calls")) + 1, sizeof *made->calls);
  json_array_foreach(sub(source, "calls"), i, call) {
    const json_t* kinds = sub(sub(sub(plan, "kernels"), txt(call, "kernel")), "parameters");
    Argument* arguments = calloc(json_array_size(kinds) + 1, sizeof *arguments);
    json_array_foreach(sub(call, "arguments"), k, item) arguments[k] =
        argument(json_array_get(kinds, k), address(item, parameters));
    made->calls[made->count++] = (Call){find("__tvm_ffi_", txt(call, "kernel")), arguments, (int64_t)k};
  }
  json_array_foreach(sub(source, "outputs"), i, item) made->outputs[i] = address(sub(item, "place"), parameters);
  made->submodule = submodule, made->dims = dims, made->slot = slot, made->next = functions;
  return functions = made;
}

// Copies a tensor without padding into one with padding, or back (`out`). Padding lies at the end of each axis; of an
// axis `batch*sequence` behind each sequence.
static void fit(const json_t* shape, size_t axis, size_t bytes, Dims small, Dims large, uint8_t* tight, uint8_t* wide,
                bool out) {
  if (axis == json_array_size(shape)) {
    memcpy(out ? tight : wide, out ? wide : tight, bytes);
    return;
  }
  size_t tight_stride = bytes, wide_stride = bytes;
  for (size_t i = axis + 1; i < json_array_size(shape); ++i) {
    tight_stride *= (size_t)extent(json_array_get(shape, i), small);
    wide_stride *= (size_t)extent(json_array_get(shape, i), large);
  }
  const bool has_rows = strchr(txt_at(shape, axis), '*') != NULL;
  const int64_t count = extent(json_array_get(shape, axis), small);
  if (tight_stride == wide_stride && !has_rows) {  // no padding behind this axis
    memcpy(out ? tight : wide, out ? wide : tight, (size_t)count * tight_stride);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t to = has_rows ? i / small.sequence * large.sequence + i % small.sequence : i;
    fit(shape, axis + 1, bytes, small, large, tight + (size_t)i * tight_stride, wide + (size_t)to * wide_stride, out);
  }
}

static bool compute_rows(const State* own, const json_t* submodule, const Row* rows, Dims dims, void* const* inputs,
                         void* const* outputs) {
  const json_t* entries = sub(facts_of(submodule), "entries");
  Dims room;
  size_t i;
  json_t *entry, *item;
  json_array_foreach(entries, i, entry) {  // the first one that has room; larger batches are for shared steps
    room = (Dims){num_at(entry, 0), num_at(entry, 1)};
    if (room.batch >= dims.batch && room.batch <= limit("max_batch") && room.sequence >= dims.sequence) break;
  }
  if (i == json_array_size(entries)) return false;
  Function* called = function(own, submodule, room, rows->row / (uint64_t)limit("max_batch"));
  json_array_foreach(sub(submodule, "inputs"), i, item) {
    const char* name = json_string_value(item);
    const json_t* type = type_of(name);
    int64_t* numbers = memset(called->inputs[i], 0, bytes_of(type, room));
    if (inputs[i])
      fit(sub(type, "shape"), 0, width(txt(type, "dtype")), dims, room, inputs[i], called->inputs[i], false);
    for (int64_t k = 0; !inputs[i] && k < (*name == 'i' ? dims.sequence : dims.batch); ++k)
      numbers[k] = *name == 'i' ? k : (int64_t)(*name == 'l' ? rows[k].length : rows[k].position);
  }
  if (run(called->calls, called->count) != 0) return false;
  json_array_foreach(sub(submodule, "outputs"), i, item) {
    const json_t* type = type_of(json_string_value(item));
    fit(sub(type, "shape"), 0, width(txt(type, "dtype")), dims, room, outputs[i], called->outputs[i], true);
  }
  return true;
}

static void* row_at(void* values, const char* name,
                    int64_t row) {  // the values of one sequence, in a step of one token
  const json_t* type = type_of(name);
  const size_t stride = bytes_of(type, (Dims){2, 1}) - bytes_of(type, (Dims){1, 1});
  return values ? (uint8_t*)values + (size_t)row * stride : NULL;
}

bool compute(const char* name, const Row* rows, Dims dims, void* const* inputs, void** outputs) {
  const json_t *submodules = sub(build, "submodules"), *submodule = named(submodules, name);
  const State(*own)[STATES] = states;
  size_t i;
  json_t* item;
  while (json_array_get(submodules, (size_t)(own - states)) != submodule) ++own;
  json_array_foreach(sub(submodule, "outputs"), i, item) outputs[i] =
      calloc(1, bytes_of(type_of(json_string_value(item)), dims) + 1);
  bool together = true;  // the sequences of one request, as its states lie
  for (int64_t k = 1; k < dims.batch; ++k)
    together = together && rows[k].request == rows->request && rows[k].row == rows->row + (uint64_t)k;
  if (together) return compute_rows(*own, submodule, rows, dims, inputs, outputs);
  // Shared steps, and steps of several tokens: row by row. Each has the sums that it has alone.
  for (int64_t k = 0; k < dims.batch; ++k) {
    void *ins[MOST], *outs[MOST];
    json_array_foreach(sub(submodule, "inputs"), i, item) ins[i] = row_at(inputs[i], json_string_value(item), k);
    json_array_foreach(sub(submodule, "outputs"), i, item) outs[i] = row_at(outputs[i], json_string_value(item), k);
    if (!compute_rows(*own, submodule, rows + k, (Dims){1, dims.sequence}, ins, outs)) return false;
  }
  return true;
}
