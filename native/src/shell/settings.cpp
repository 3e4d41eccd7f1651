#include "shell/settings.hpp"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "errors.hpp"

namespace partc::shell {

StopSignals::StopSignals() {
  sigset_t asked;
  sigemptyset(&asked);
  sigaddset(&asked, SIGTERM);
  sigaddset(&asked, SIGINT);
  pthread_sigmask(SIG_BLOCK, &asked, nullptr);
  descriptor_ = signalfd(-1, &asked, SFD_CLOEXEC);
  if (descriptor_ < 0) throw run_error(std::string("signals cannot be waited for: ") + std::strerror(errno));
}

StopSignals::~StopSignals() { close(descriptor_); }

}  // namespace partc::shell
