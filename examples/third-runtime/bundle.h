// The folder of a device: build.json, placements, and the programs in them.
#pragma once
#include "values.h"

typedef struct {
  int64_t batch, sequence;
} Dims;
typedef enum { RECV, RUN, SEND, SAMPLE, EMIT, UNKNOWN } Operation;
typedef struct {
  Operation operation;
  char* where;              // recv, send: the peer; run: the sub-module
  char **names, **outputs;  // values; `outputs` of run and sample
  int count, output_count;
} Line;
typedef struct {
  char *text, *words[1024];  // what the lines point into
  Line lines[128];
  int count;
} Program;
typedef struct {
  json_t *json, *sampled;   // `sampled`: values that some device samples or emits
  Program prefill, decode;  // this device's; empty where it is idle
} Placement;

extern const char* folder;
extern json_t* build;
extern const char* device;  // the name of this one

_Noreturn void die(const char* form, ...);        // wrong bundle, keys or address: code 1
char* read_file(const char* name, size_t* size);  // of the folder, held against its SHA-256; with a 0 behind it
void open_bundle(const char* path);
int64_t limit(const char* key);                                                  // of `model` in build.json
Placement* read_placement(const char* text, size_t size, const char** problem);  // NULL: `problem` says why
void free_placement(Placement* placement);
const Program* program_of(const Placement* placement, const char* phase);
bool leaves_out(const Placement* placement, const char* phase, const Line* line);  // in parts of prompts, forced steps
json_t* type_of(const char* value);             // {dtype, shape}; NULL where there is no such value
size_t width(const char* dtype);                // bytes of an element
int64_t extent(const json_t* axis, Dims dims);  // a number, or an expression of symbols
size_t bytes_of(const json_t* type, Dims dims);
