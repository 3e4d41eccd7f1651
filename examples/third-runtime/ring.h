// Requests and their steps: what the programs of this device do with the values of each step.
#pragma once
#include "kernels.h"
#include "wire.h"

typedef struct {                   // the last request of a slot
  uint64_t request, step, branch;  // `step`: the next one
  uint64_t positions[64];          // of its sequences, before that step
  bool is_over;
  json_t* opening;  // its sampling, and whether it is traced; NULL: the slot had no request yet
} Request;

enum { SLOTS = 256 };
extern Request requests[SLOTS];

typedef struct {
  const char* name;
  void* bytes;
} Value;

typedef struct Step {
  struct Step* next;
  json_t* head;  // of its first message: dims, rows and open go on as they came
  const char* phase;
  Row rows[64];
  Dims dims;
  Message* messages;  // that have come for it
  Value values[64];
  int value_count, line;  // the next line of its program
  bool has_begun;
  double computed, busy;  // seconds; busy < 0: nobody wants to know
  json_t* likely;
} Step;

void begin_step(json_t* head, const char* name, void* bytes);  // at the source; takes `head` and its first value
void advance(void);                                            // runs all that can
void close_request(uint64_t request, bool report);
void drop_steps(void);  // all of them

// sample.c: the token; `likely` gets what its sampling asks for
int64_t draw(const float* logits, const json_t* sampling, uint64_t row, uint64_t position, json_t* likely);
// change.c
void tick(void);        // tells the source what has become true
void adopt_next(void);  // puts the prepared placement in force
// source.c
void open_source(void);
void tick_source(void);
void take_tokens(uint64_t request, const int64_t* tokens, json_t* likely);  // `likely` may be NULL
void end_requests(int64_t request, bool earlier, const json_t* problem);    // as `fail`
