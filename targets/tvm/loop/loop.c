/* The part of a library that is not kernels: the loop over a kernel plan, threads, and scratch memory.

   A program that runs a plan (docs/bundle.md, "Target tvm") makes the arguments of all calls once and then calls
   partc_run. One thread at a time may do so. Kernels are made by TVM and keep to its conventions: a kernel returns 0,
   or not 0 where there was no scratch memory; it asks for that and for threads through three pointers that it declares
   weak, and that are defined here. No argument is checked here: the reader of a plan has done that.

   The library has no threads of its own. A thread of the caller's that calls partc_work(&stop) helps with every kernel
   from then on, until somebody sets `stop` and calls partc_wake. Users of one library may have threads each, with words
   of their own: they help with the kernels of all, and each user ends its own.

   translate.py makes loop.ll of this file, so that whoever compiles a model needs no C compiler. For all platforms have
   the same loop.ll, there is no header, and nothing of libc but posix_memalign, free and syscall. */

typedef signed int int32_t;
typedef unsigned int uint32_t;
typedef signed long int64_t;
typedef unsigned long uint64_t;

#define HIDDEN __attribute__((visibility("hidden")))
#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_SEQ_CST)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_SEQ_CST)
#define ADD(place, value) __atomic_fetch_add(&(place), (value), __ATOMIC_SEQ_CST)

int posix_memalign(void **, uint64_t, uint64_t);
void free(void *);
long syscall(long, ...);

/* ---- The loop ---- */

typedef struct {
  int32_t type; /* TVM's number: 7 is a DLTensor */
  uint32_t padding;
  void *pointer;
} Argument;
typedef int32_t (*Kernel)(void *self, const Argument *arguments, int32_t count, Argument *result);
typedef struct {
  Kernel kernel;
  const Argument *arguments;
  int64_t count;
} Call;

/* Run calls one after the other. 0, or the number, counted from 1, of the call that had no memory. */
int64_t partc_run(const Call *calls, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Argument result = {0, 0, 0};
    if (calls[i].kernel(0, calls[i].arguments, (int32_t)calls[i].count, &result)) return i + 1;
  }
  return 0;
}

/* ---- Threads ---- */

typedef struct {
  void *barrier;
  int32_t tasks;
} Group;
typedef int32_t (*Task)(int32_t number, Group *group, void *data);

enum { WAIT = 128, WAKE = 129, ALL = 0x7fffffff, MOST_TASKS = 0xffff };
/* Rounds of looking for work before a thread sleeps: some 20 us, about what waking one takes. */
enum { SPINS = 20000 };

/* The number of the system call on the platform; loop.ll gets it when it is compiled. */
extern const int64_t partc_futex HIDDEN;

/* One word, so that who takes a task takes one of this launch: launches so far << 32 | tasks << 16 | tasks taken. */
static uint64_t state;
static Task launched;
static void *launched_data;
static int32_t done, failed, is_busy, is_waiting;
static int32_t workers, sleepers;

static uint32_t launches(void) { return (uint32_t)(LOAD(state) >> 32); }

/* Sleep while the half of the word has this value. */
static void sleep_at(void *word, uint32_t value) { syscall(partc_futex, word, (long)WAIT, (long)value, 0L, 0L, 0L); }

static void wake(void *word, int32_t count) { syscall(partc_futex, word, (long)WAKE, (long)count, 0L, 0L, 0L); }

/* The number of launches, which is the upper half of `state`: all platforms store the least byte first. */
static void *launches_word(void) { return (char *)&state + 4; }

/* Do one task of the present launch; 0 where none is left. */
static int do_task(void) {
  uint64_t seen = LOAD(state);
  for (;;) {
    const uint32_t tasks = seen >> 16 & MOST_TASKS, number = seen & MOST_TASKS;
    if (number >= tasks) return 0;
    const Task task = LOAD(launched);
    void *const data = LOAD(launched_data);
    /* Fails, and reads anew, if somebody else took the task: then task and data may be another launch's. */
    if (!__atomic_compare_exchange_n(&state, &seen, seen + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
    Group group = {0, (int32_t)tasks};
    if (task((int32_t)number, &group, data)) STORE(failed, 1);
    if (ADD(done, 1) + 1 == (int32_t)tasks && LOAD(is_waiting)) wake(&done, 1);
    return 1;
  }
}

static int32_t do_all(Task task, void *data, int32_t tasks) {
  Group group = {0, tasks};
  for (int32_t i = 0; i < tasks; ++i)
    if (task(i, &group, data)) return -1;
  return 0;
}

static void await_tasks(int32_t tasks) {
  int32_t now;
  for (int32_t round = 0; (now = LOAD(done)) < tasks; ++round) {
    if (round < SPINS) continue;
    STORE(is_waiting, 1);
    sleep_at(&done, (uint32_t)now);
  }
  STORE(is_waiting, 0);
}

/* Do tasks 0 to n - 1 in any order; n is the number of threads where `tasks` is 0. */
static int32_t launch(Task task, void *data, int32_t tasks) {
  const int32_t n = tasks > 0 ? tasks : LOAD(workers) + 1;
  if (n == 1 || n > MOST_TASKS || !LOAD(workers)) return do_all(task, data, n);
  if (__atomic_exchange_n(&is_busy, 1, __ATOMIC_SEQ_CST)) return do_all(task, data, n); /* a launch in a task */
  STORE(failed, 0);
  STORE(done, 0);
  STORE(launched, task);
  STORE(launched_data, data);
  STORE(state, (uint64_t)(launches() + 1) << 32 | (uint64_t)n << 16);
  if (LOAD(sleepers)) wake(launches_word(), n - 1);
  while (do_task()) {
  }
  await_tasks(n);
  const int32_t result = LOAD(failed) ? -1 : 0;
  STORE(is_busy, 0);
  return result;
}

/* Help with kernels until *stop is not 0. */
void partc_work(const int32_t *stop) {
  ADD(workers, 1);
  while (!LOAD(*stop)) {
    const uint32_t seen = launches();
    while (do_task()) {
    }
    for (int32_t round = 0; round < SPINS && launches() == seen; ++round) {
    }
    if (launches() != seen) continue;
    ADD(sleepers, 1);
    if (!LOAD(*stop)) sleep_at(launches_word(), seen);
    ADD(sleepers, -1);
  }
  ADD(workers, -1);
}

/* Let threads that sleep in partc_work look at their word. */
void partc_wake(void) {
  ADD(state, (uint64_t)1 << 32);
  wake(launches_word(), ALL);
}

/* ---- Scratch memory ---- */

static void *allocate(int32_t device, int32_t number, uint64_t bytes, int32_t code, int32_t bits) {
  void *memory = 0;
  return posix_memalign(&memory, 64, bytes) ? 0 : memory;
}

static int32_t release(int32_t device, int32_t number, void *memory) {
  free(memory);
  return 0;
}

/* ---- The pointers through which kernels reach all that ---- */

HIDDEN int32_t (*__TVMBackendParallelLaunch)(Task, void *, int32_t) = launch;
HIDDEN void *(*__TVMBackendAllocWorkspace)(int32_t, int32_t, uint64_t, int32_t, int32_t) = allocate;
HIDDEN int32_t (*__TVMBackendFreeWorkspace)(int32_t, int32_t, void *) = release;
