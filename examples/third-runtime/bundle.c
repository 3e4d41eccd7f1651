#include "bundle.h"

#include <ctype.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *folder, *device;
json_t* build;

void die(const char* form, ...) {
  va_list values;
  va_start(values, form);
  fputs("error: ", stderr), vfprintf(stderr, form, values), fputc('\n', stderr);
  exit(1);
}

char* read_file(const char* name, size_t* size) {
  char path[4096], digits[2 * crypto_hash_sha256_BYTES + 1];
  unsigned char digest[crypto_hash_sha256_BYTES];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE* file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END) != 0) die("%s: cannot be read; --bundle takes the folder of a device", path);
  char* bytes = calloc(1, (*size = (size_t)ftell(file)) + 1);
  rewind(file);
  if (!bytes || fread(bytes, 1, *size, file) != *size) die("%s: cannot be read", path);
  fclose(file);
  crypto_hash_sha256(digest, (const unsigned char*)bytes, *size);
  sodium_bin2hex(digits, sizeof digits, digest, sizeof digest);
  const json_t* entry = sub(sub(build, "files"), name);
  if (entry && !is(entry, "sha256", digits)) die("%s: is not the file of this build; copy the folder again", path);
  return bytes;
}

void open_bundle(const char* path) {
  size_t size;
  folder = path;
  char* bytes = read_file("build.json", &size);
  build = json_loadb(bytes, size, 0, NULL);
  free(bytes);
  if (!is(build, "format", "partc-build/2")) die("%s/build.json: is not of the format partc-build/2", path);
  device = txt(build, "device");
}

int64_t limit(const char* key) { return num(sub(build, "model"), key); }

// ---- placements and programs

static void parse(Program* program, const char* source) {
  static const char* kOperations[] = {"recv", "run", "send", "sample", "emit"};
  char *lines, *words, **word = program->words, **end = word + sizeof program->words / sizeof *word - 1;
  program->text = strdup(source);
  for (char* text = strtok_r(program->text, "\n", &lines); text; text = strtok_r(NULL, "\n", &lines)) {
    char** first = word;
    text[strcspn(text, "#")] = 0;
    for (*word = strtok_r(text, " ,()", &words); *word && word < end;) *++word = strtok_r(NULL, " ,()", &words);
    if (word - first < 2 || program->count == 128) continue;
    Line* line = &program->lines[program->count++];
    while (line->operation < UNKNOWN && strcmp(kOperations[line->operation], *first) != 0) ++line->operation;
    const bool travels = line->operation == RECV || line->operation == SEND, runs = line->operation == RUN;
    line->where = travels ? word[-1] : first[1];
    line->names = first + (runs ? 2 : 1);
    char** last = travels ? word - 2 : word;  // without "from DEVICE"
    while (line->names + line->count < last && strcmp(line->names[line->count], "->") != 0) ++line->count;
    line->outputs = line->names + line->count + 1;
    line->output_count = last > line->outputs ? (int)(last - line->outputs) : 0;
    const json_t* part = runs && first[1] ? named(sub(build, "submodules"), first[1]) : NULL;
    const bool fits = (size_t)line->count == json_array_size(sub(part, "inputs")) &&
                      (size_t)line->output_count == json_array_size(sub(part, "outputs"));
    if (line->count < 1 || (line->operation == SAMPLE && line->output_count != 1) || (part && !fits))
      line->operation = UNKNOWN;
  }
}

static bool has_peer(const char* name) {
  static json_t* keys;
  char path[4096];
  snprintf(path, sizeof path, "%s/keys/peers.json", folder);
  keys = keys ?: json_load_file(path, 0, NULL);
  return sub(keys, name) != NULL;
}

Placement* read_placement(const char* text, size_t size, const char** problem) {
  Placement* made = calloc(1, sizeof *made);
  const char *phase, *owner;
  json_t *owners, *source;
  made->json = json_loadb(text, size, 0, NULL), made->sampled = json_object();
  *problem = is(made->json, "plan_id", txt(build, "plan_id")) ? NULL : "placement.json: is not of this build";
  json_object_foreach(sub(made->json, "programs"), phase, owners) json_object_foreach(owners, owner, source) {
    Program *other = calloc(1, sizeof *other), *to = strcmp(phase, "decode") == 0 ? &made->decode : &made->prefill;
    const bool own = strcmp(owner, device) == 0;
    parse(own ? to : other, json_string_value(source) ?: "");
    if (!own) to = other;
    for (const Line* line = to->lines; line < to->lines + to->count; ++line) {
      if (line->operation == SAMPLE) json_object_set_new(made->sampled, *line->outputs, json_true());
      if (line->operation == EMIT) json_object_set_new(made->sampled, *line->names, json_true());
      if (own && line->operation == UNKNOWN) *problem = "a program has an instruction that this runtime does not know";
      if (own && line->operation == SEND && !has_peer(line->where))
        *problem = "a program sends to a device that has no key here";
      if (own && line->operation == RUN && !named(sub(build, "submodules"), line->where))
        *problem = "a program runs a sub-module that is not in this folder";
    }
    free(other->text), free(other);
  }
  if (*problem) free_placement(made), made = NULL;
  return made;
}

void free_placement(Placement* placement) {
  if (!placement) return;
  json_decref(placement->json), json_decref(placement->sampled);
  free(placement->prefill.text), free(placement->decode.text), free(placement);
}

const Program* program_of(const Placement* placement, const char* phase) {
  const bool later = strcmp(phase, "decode") == 0 || strcmp(phase, "replay") == 0;
  return later ? &placement->decode : &placement->prefill;
}

bool leaves_out(const Placement* placement, const char* phase, const Line* line) {
  if (strcmp(phase, "chunk") != 0 && strcmp(phase, "replay") != 0) return false;
  return line->operation >= SAMPLE || (line->operation != RUN && sub(placement->sampled, *line->names));
}

// ---- types

json_t* type_of(const char* value) {
  static json_t* given;  // the step inputs
  if (!given)
    given =
        say("{'position': {'dtype': 'int64', 'shape': ['batch']}, 'length': {'dtype': 'int64', 'shape': ['batch']},"
            " 'index': {'dtype': 'int64', 'shape': ['sequence']}}");
  return sub(given, value) ?: sub(sub(build, "values"), value) ?: named(sub(build, "inputs"), value);
}

size_t width(const char* dtype) {
  const char* bits = strpbrk(dtype, "123468");
  return bits ? (size_t)atoi(bits) / 8 : 1;  // bool
}

// An expression of + - (`rank` 0), of * // (1), or a number, a symbol or what stands in parentheses (2).
static int64_t evaluate(const char** at, Dims dims, int rank) {
  int64_t value = 0;
  *at += strspn(*at, " ");
  if (rank < 2) {
    const char* operators = rank ? "*/" : "+-";
    for (value = evaluate(at, dims, rank + 1); **at && strchr(operators, **at);) {
      const char operator= ** at;
      *at += strspn(*at, operators);
      const int64_t next = evaluate(at, dims, rank + 1);
      if (operator== '/') value = next ? value / next : 0;
      else value = operator== '*' ? value * next : operator== '+' ? value + next : value - next;
    }
    return value;
  }
  if (**at == '(') ++*at, value = evaluate(at, dims, 0), *at += **at == ')';
  else if (isdigit((unsigned char)**at)) value = strtoll(*at, (char**)at, 10);
  else {
    char name[256];
    const int size = (int)strcspn(*at, " +-*/()");
    snprintf(name, sizeof name, "%.*s", size, *at), *at += size;
    value = strcmp(name, "batch") == 0      ? dims.batch
            : strcmp(name, "sequence") == 0 ? dims.sequence
                                            : num(sub(build, "dims"), name);
  }
  *at += strspn(*at, " ");
  return value;
}

int64_t extent(const json_t* axis, Dims dims) {
  const char* expression = json_string_value(axis);
  return expression ? evaluate(&expression, dims, 0) : json_integer_value(axis);
}

size_t bytes_of(const json_t* type, Dims dims) {
  size_t bytes = width(txt(type, "dtype")), i;
  json_t* axis;
  json_array_foreach(sub(type, "shape"), i, axis) bytes *= (size_t)extent(axis, dims);
  return bytes;
}
