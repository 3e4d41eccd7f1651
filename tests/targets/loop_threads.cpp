// loop_threads ROUNDS: the threads of loop.c under a load of launches, to be compiled with it and a sanitizer. Prints
// nothing where every task of every launch ran once.
#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

struct Group {
  void* barrier;
  int32_t tasks;
};
struct Argument {
  int32_t type;
  uint32_t padding;
  void* pointer;
};
using Task = int32_t (*)(int32_t, Group*, void*);
struct Call {
  int32_t (*kernel)(void*, const Argument*, int32_t, Argument*);
  const Argument* arguments;
  int64_t count;
};

extern "C" {
extern int32_t (*__TVMBackendParallelLaunch)(Task, void*, int32_t);
extern void* (*__TVMBackendAllocWorkspace)(int32_t, int32_t, uint64_t, int32_t, int32_t);
extern int32_t (*__TVMBackendFreeWorkspace)(int32_t, int32_t, void*);
int64_t partc_run(const Call*, int64_t);
void partc_work(const int32_t*);
void partc_wake(void);
}

namespace {

constexpr int32_t kTasks = 7;
int64_t sums[kTasks];  // plain memory: a data race on it is a fault of the loop
int32_t asked = 0;     // tasks that the next launch asks for; 0: as many as there are threads
std::atomic<int32_t> ran{0};

int32_t add(int32_t number, Group* group, void* data) {
  sums[number] += *static_cast<int64_t*>(data);
  ran += group->tasks;
  void* scratch = __TVMBackendAllocWorkspace(1, 0, 4096, 2, 32);
  return scratch ? __TVMBackendFreeWorkspace(1, 0, scratch) : -1;
}

int32_t nested(int32_t number, Group* group, void* data) {
  int64_t nothing = 0;
  return number == 0 ? __TVMBackendParallelLaunch(add, &nothing, 1) : add(number, group, data);
}

int32_t fail(int32_t number, Group*, void*) { return number == 1; }

int32_t kernel(void*, const Argument* arguments, int32_t, Argument*) {
  return __TVMBackendParallelLaunch(reinterpret_cast<Task>(arguments->pointer), sums + kTasks - 1, asked);
}

int32_t refuse(void*, const Argument*, int32_t, Argument*) { return -1; }

void expect(bool is_right, const char* what) {
  if (!is_right) std::printf("%s\n", what), std::exit(1);
}

/** Threads that help, as one user of a library has them. */
class Helpers {
 public:
  explicit Helpers(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back(partc_work, &stop_);
  }
  ~Helpers() {
    __atomic_store_n(&stop_, 1, __ATOMIC_SEQ_CST);
    partc_wake();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  int32_t stop_ = 0;
  std::vector<std::thread> threads_;
};

void launch_often(int rounds, Task task) {
  const Argument argument = {7, 0, reinterpret_cast<void*>(task)};
  const Call calls[] = {{kernel, &argument, 1}, {kernel, &argument, 1}};
  for (int round = 0; round < rounds; ++round) {
    asked = round % kTasks;  // the last sum is only read
    expect(partc_run(calls, 2) == 0, "a launch failed");
  }
}

/** Signals that end the sleep of any thread, a thousand a second. */
void interrupt_often() {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &often, nullptr);
}

}  // namespace

int main(int, char** words) {
  const int rounds = std::atoi(words[1]);
  interrupt_often();
  sums[kTasks - 1] = 1;
  for (int life = 0; life < 3; ++life) {
    auto others = std::make_unique<Helpers>(1);
    const Helpers helpers(3);
    launch_often(rounds, add);
    std::thread leaving([&] { others.reset(); });  // another user leaves, while this one launches
    launch_often(rounds / 10, nested);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // all are asleep now
    launch_often(10, add);
    leaving.join();
    asked = 3;
    const Argument failing = {7, 0, reinterpret_cast<void*>(fail)};
    const Call calls[] = {{kernel, &failing, 1}, {refuse, nullptr, 0}};
    expect(partc_run(calls, 2) == 1, "a task failed, and nobody noticed");
    expect(partc_run(calls + 1, 1) == 1, "a kernel failed, and nobody noticed");
  }
  launch_often(10, add);  // without threads
  int64_t total = 0;
  for (int32_t i = 0; i < kTasks - 1; ++i) total += sums[i];
  expect(total > 0 && ran > 0, "nothing ran");
}
