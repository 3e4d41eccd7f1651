/* partc_stage.h: the work of one device of a build, for runtimes of others (docs/stage.md).
 *
 * A stage computes what the programs of a device's folder say, and keeps the states of its requests. Whoever embeds it
 * carries values from stage to stage; nothing here opens a socket. C99, C++.
 *
 * Errors: a function answers PARTC_STAGE_OK, PARTC_STAGE_MORE where it says so, or a code below 0, whose text is in
 * `error`, which may be null. Nothing is thrown. What a call refuses with PARTC_STAGE_USAGE has changed nothing; behind
 * any other error of a step, its slots must be reset.
 *
 * Threads: calls with one stage come one after the other, from any thread. partc_stage_settle may run beside all of them
 * in a thread of its own, and functions that take a `const` stage beside any. Stages know nothing of each other.
 *
 * Memory: what a function points to lives as long as the stage. Buffers of tensors belong to the caller, and are used
 * in place until the call ends. Elements lie in row-major order, least byte first, without gaps, at addresses that are
 * multiples of their size.
 */
#ifndef PARTC_STAGE_H
#define PARTC_STAGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define PARTC_STAGE_API __attribute__((visibility("default")))
#else
#define PARTC_STAGE_API
#endif

/* The version of all that this file says. A library serves programs of its own version alone: compare it with
 * partc_stage_abi() before any other call. */
#define PARTC_STAGE_ABI 1

/* Axes of a tensor at most. */
#define PARTC_STAGE_AXES 8

/* Results. */
enum {
  PARTC_STAGE_OK = 0,
  PARTC_STAGE_MORE = 1,    /* a step waits for a message; settling has more to do */
  PARTC_STAGE_USAGE = -1,  /* an argument is wrong */
  PARTC_STAGE_BUNDLE = -2, /* the folder is damaged, or not for this machine */
  PARTC_STAGE_RUN = -3,    /* a step failed */
  PARTC_STAGE_MEMORY = -4, /* there is no memory */
  PARTC_STAGE_BUG = -5     /* a fault of this library */
};

/* Element types. */
enum {
  PARTC_STAGE_FLOAT64 = 0,
  PARTC_STAGE_FLOAT32 = 1,
  PARTC_STAGE_FLOAT16 = 2,
  PARTC_STAGE_BFLOAT16 = 3, /* its 16 bits */
  PARTC_STAGE_INT64 = 4,
  PARTC_STAGE_INT32 = 5,
  PARTC_STAGE_INT16 = 6,
  PARTC_STAGE_INT8 = 7,
  PARTC_STAGE_UINT64 = 8,
  PARTC_STAGE_UINT32 = 9,
  PARTC_STAGE_UINT16 = 10,
  PARTC_STAGE_UINT8 = 11,
  PARTC_STAGE_BOOL = 12
};

/* Where a value of a step comes from or goes to. */
enum {
  PARTC_STAGE_GIVEN = 0,    /* in: the request brings it; on the source alone */
  PARTC_STAGE_RECEIVED = 1, /* in: a device sends it */
  PARTC_STAGE_SENT = 2,     /* out: a device receives it */
  PARTC_STAGE_EMITTED = 3,  /* out: the client gets it */
  PARTC_STAGE_LOGITS = 4    /* out: what a token is drawn from, float32[batch, 1, vocabulary] as a rule */
};

typedef struct partc_stage partc_stage_t;

typedef struct partc_stage_error_t {
  int32_t code;
  char text[1020]; /* UTF-8, ends with 0 */
} partc_stage_error_t;

/* What there is to know of a stage before any step. Texts are UTF-8; "" where there is none. */
typedef struct partc_stage_facts_t {
  const char *device, *source; /* this device, and the one where requests enter */
  const char *model, *task, *target;
  const char *plan_id, *placement_id;
  const char* const* phases; /* kinds of steps; a null pointer ends them */
  int64_t slots;             /* requests that have states at a time, numbered from 0 */
  int64_t max_batch;         /* sequences of a request at most */
  int64_t max_sequence;      /* tokens of prompt and answer together at most */
  int64_t vocabulary;        /* 0: the model has none */
  int64_t step_requests;     /* requests that may share a step of one token each */
  int64_t states;            /* states, numbered from 0 */
} partc_stage_facts_t;

/* A value of a step. */
typedef struct partc_stage_value_t {
  const char* name;
  const char* peer;  /* the other device, "" for GIVEN, EMITTED and LOGITS */
  int32_t direction; /* PARTC_STAGE_GIVEN … */
  int32_t dtype;
  int32_t message; /* values of one message between two devices have the same number; -1: of none */
  int32_t order;   /* inputs: how many instructions lie before the one that awaits it; outputs: before it is there */
} partc_stage_value_t;

/* A state of a request. Its rows are [positions, heads, width] outside, whatever its layout inside. */
typedef struct partc_stage_state_t {
  const char *submodule, *name;
  int32_t dtype;
  int32_t is_whole; /* 1: each step rewrites all of it, and it is one row; 0: a step writes rows at its positions */
  int64_t positions, heads, width;
} partc_stage_state_t;

/* The size of a symbol that is neither `batch` nor `sequence`: `source` of a model that reads a source before. */
typedef struct partc_stage_size_t {
  const char* symbol;
  int64_t size;
} partc_stage_size_t;

/* How tokens are drawn (docs/wire.md, "A request"). */
typedef struct partc_stage_sampling_t {
  double temperature; /* 0: the likeliest one */
  int64_t top_k;      /* 0: all */
  double top_p;       /* 1: all */
  uint64_t seed;
} partc_stage_sampling_t;

/* A step of a request; or of several requests, which have one row of one token each; or of consecutive tokens of one. */
typedef struct partc_stage_step_t {
  const char* phase;
  int64_t batch;           /* sequences, or rows of one token each */
  int64_t sequence;        /* new tokens of a sequence at most */
  const int64_t* position; /* [batch]: valid tokens of each before the step */
  const int64_t* length;   /* [batch]: valid new tokens; null: `sequence` each */
  const int64_t* slots;    /* one; or one of each row */
  int64_t slot_count;
  const partc_stage_sampling_t* sampling; /* one of each slot; null: the likeliest token */
  const partc_stage_size_t* sizes;        /* of further symbols */
  int64_t size_count;
} partc_stage_step_t;

/* A tensor in memory of the caller, of the shape that partc_stage_shape gives. */
typedef struct partc_stage_tensor_t {
  const char* name;
  void* data;
  int64_t bytes; /* of an output: what there is room for, at least its size */
  int32_t dtype;
  int32_t is_made; /* of an output: set to 1 where this call made it, else to 0 */
} partc_stage_tensor_t;

/* The version of the library: PARTC_STAGE_ABI of the header that it was built with. */
PARTC_STAGE_API uint32_t partc_stage_abi(void);

/* Open the folder of a device: every file is held against its digest, all that the programs run is loaded.
 * threads: that compute, 0 for as many as the build says. Where this fails, *stage is null. */
PARTC_STAGE_API int32_t partc_stage_open(const char* folder, int32_t threads, partc_stage_t** stage,
                                         partc_stage_error_t* error);

/* Give everything back; null is let pass. No call may be under way. */
PARTC_STAGE_API void partc_stage_close(partc_stage_t* stage);

PARTC_STAGE_API int32_t partc_stage_describe(const partc_stage_t* stage, partc_stage_facts_t* facts,
                                             partc_stage_error_t* error);

/* The value `index`, from 0, of the steps of a phase, in the order of the program; PARTC_STAGE_MORE: there are no more. */
PARTC_STAGE_API int32_t partc_stage_value(const partc_stage_t* stage, const char* phase, int64_t index,
                                          partc_stage_value_t* value, partc_stage_error_t* error);

/* The state `index`, from 0. */
PARTC_STAGE_API int32_t partc_stage_state(const partc_stage_t* stage, int64_t index, partc_stage_state_t* state,
                                          partc_stage_error_t* error);

/* The shape of a value in a step: `rank` sizes in shape[PARTC_STAGE_AXES]. */
PARTC_STAGE_API int32_t partc_stage_shape(const partc_stage_t* stage, const partc_stage_step_t* step, const char* value,
                                          int64_t* shape, int32_t* rank, partc_stage_error_t* error);

/* Begin a request of `batch` sequences in a slot: its states are zeros, and a step under way there is dropped.
 * Every request begins so. sizes: of further symbols of states, as in a step. */
PARTC_STAGE_API int32_t partc_stage_reset(partc_stage_t* stage, int64_t slot, int64_t batch,
                                          const partc_stage_size_t* sizes, int64_t size_count,
                                          partc_stage_error_t* error);

/* Compute a step as far as its inputs reach. `position`, `length` and `index` are made of `step` and not given.
 * PARTC_STAGE_OK: the step is over. PARTC_STAGE_MORE: it waits for the message that `error` names; call again with the
 * same step and that message's values. A new step in the slot ends one that waits and has nothing left to compute.
 * outputs: those that the caller wants; others are dropped as soon as nothing needs them. */
PARTC_STAGE_API int32_t partc_stage_step(partc_stage_t* stage, const partc_stage_step_t* step,
                                         const partc_stage_tensor_t* inputs, int64_t input_count,
                                         partc_stage_tensor_t* outputs, int64_t output_count,
                                         partc_stage_error_t* error);

/* Copy rows `begin` to before `end` of a state of a sequence out of a slot: [end - begin, heads, width]. */
PARTC_STAGE_API int32_t partc_stage_read_rows(partc_stage_t* stage, int64_t slot, int64_t state, int64_t row,
                                              int64_t begin, int64_t end, void* data, int64_t bytes,
                                              partc_stage_error_t* error);

/* Copy rows that this or another stage gave into a slot that was reset, to the positions from `begin` on. */
PARTC_STAGE_API int32_t partc_stage_write_rows(partc_stage_t* stage, int64_t slot, int64_t state, int64_t row,
                                               int64_t begin, int64_t end, const void* data, int64_t bytes,
                                               partc_stage_error_t* error);

/* Put a piece of the weights into large pages, where steps read them faster; takes milliseconds. PARTC_STAGE_MORE: there
 * may be another piece. Steps compute the same before, after and meanwhile; never calling it is right, too. */
PARTC_STAGE_API int32_t partc_stage_settle(partc_stage_t* stage, partc_stage_error_t* error);

#ifdef __cplusplus
}
#endif

#endif
