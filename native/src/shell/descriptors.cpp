#include "shell/descriptors.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "errors.hpp"

namespace partc::shell {
namespace {

constexpr rlim_t kLeast = 64;  // a runner has some 40 open: sockets, ZeroMQ's own, the weights
constexpr rlim_t kMost = 65'536;
constexpr std::size_t kMostSilent = 256;

}  // namespace

void raise_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t wanted = std::min(limit.rlim_max, kMost);  // unlimited is the largest number
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= kLeast) return;
  throw run_error("the system lets this process open " + std::to_string(limit.rlim_cur) +
                      " files, and a runner needs " + std::to_string(kLeast),
                  "ulimit -n", "raise the limit: ulimit -n 1024");
}

std::size_t most_silent() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? kMostSilent : std::clamp<std::size_t>(limit.rlim_cur / 4, 8, kMostSilent);
}

}  // namespace partc::shell
