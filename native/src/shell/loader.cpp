#include "shell/loader.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "engines/huge_pages.hpp"
#include "errors.hpp"
#include "format/files.hpp"

namespace partc::shell {

Loader::Loader(RolePtr role, std::string folder) : role_(std::move(role)), folder_(std::move(folder)) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
    throw run_error(std::string("no pair of sockets can be had: ") + std::strerror(errno));
  told_ = ends[0];
  teller_ = ends[1];
}

Loader::~Loader() {
  {
    const std::lock_guard lock(changing_);
    is_ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  close(told_);
  close(teller_);
}

bool Loader::is_busy() const {
  const std::lock_guard lock(changing_);
  return asked_ != ended_;
}

void Loader::begin() {
  engines::share_heap();
  asked_ = 1;
  thread_ = std::thread([this] { work(); });
}

void Loader::add(Job job) {
  {
    const std::lock_guard lock(changing_);
    ++asked_;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

std::vector<Loader::Outcome> Loader::results() {
  char bytes[4096];
  while (recv(told_, bytes, sizeof bytes, 0) > 0) continue;
  std::vector<Result> found;
  {
    const std::lock_guard lock(changing_);
    found.swap(results_);
  }
  std::vector<Outcome> outcomes;
  for (Result& result : found) {
    if (const auto* failure = std::get_if<std::exception_ptr>(&result)) std::rethrow_exception(*failure);
    outcomes.push_back(std::move(std::get<Outcome>(result)));
  }
  return outcomes;
}

void Loader::work() {
  const auto end_job = [this] {
    const std::lock_guard lock(changing_);
    ++ended_;
  };
  try {
    load_first();
    end_job();
    tell(Outcome(core::Loaded{}));
    while (std::optional<Job> job = next()) {
      std::optional<Outcome> outcome;
      if (const auto* load = std::get_if<core::Load>(&*job)) {
        outcome = loaded(*load);
      } else {
        for (const std::string& name : std::get<core::Release>(*job).submodules) engine_->release(name);
      }
      end_job();
      if (outcome) tell(std::move(*outcome));
    }
  } catch (const std::bad_alloc&) {
    tell(std::make_exception_ptr(no_memory()));
  } catch (...) {
    tell(std::current_exception());
  }
}

/** While there is none, weights are put where steps read them fastest. */
std::optional<Loader::Job> Loader::next() {
  std::unique_lock lock(changing_);
  for (bool has_more = true; has_more && !is_ending_ && jobs_.empty();) {
    lock.unlock();
    has_more = engine_->settle();
    lock.lock();
  }
  changed_.wait(lock, [this] { return is_ending_ || !jobs_.empty(); });
  if (jobs_.empty()) return {};
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

void Loader::tell(Result result) {
  {
    const std::lock_guard lock(changing_);
    results_.push_back(std::move(result));
  }
  // Where the socket takes no more, it is readable, which is all that it is for.
  [[maybe_unused]] const ssize_t sent = send(teller_, "", 1, MSG_NOSIGNAL);
}

void Loader::load_first() {
  std::vector<std::string> idle;
  const std::set<std::string> running(role_->running.begin(), role_->running.end());
  for (const auto& [name, submodule] : role_->submodules)
    if (!running.contains(name)) idle.push_back(name);
  std::set<std::string> later = files_of(idle);
  for (const std::string& file : files_of(role_->running)) later.erase(file);
  verify_files(folder_, role_->build->files, [&](const std::string& name) { return later.contains(name); });
  for (const auto& [name, entry] : role_->build->files)
    if (!later.contains(name)) verified_.insert(name);
  engine_ = engines::make_engine(role_->build, folder_);
  for (const std::string& name : role_->running) engine_->load(name);
}

Loader::Outcome Loader::loaded(const core::Load& load) {
  const auto failed = [&](Error error) {
    for (const std::string& name : load.submodules)
      engine_->release(name);  // half of them are of no use, and take their memory
    return core::LoadFailed{load.epoch, std::move(error)};
  };
  try {
    for (const std::string& file : files_of(load.submodules)) {
      if (verified_.contains(file)) continue;
      verify_file(folder_, file, role_->build->files.at(file));
      verified_.insert(file);
    }
    for (const std::string& name : load.submodules) engine_->load(name);
  } catch (const Error& error) {
    return failed(error);
  } catch (const std::bad_alloc&) {
    return failed(no_memory());
  }
  return core::Loaded{load.epoch};
}

Error Loader::no_memory() const {
  return run_error(
      "there is not enough memory", role_->device(),
      "end other programs, or compile again: with less `memory` for this device, or a smaller max_sequence");
}

std::set<std::string> Loader::files_of(const std::vector<std::string>& submodules) const {
  std::set<std::string> files;
  for (const std::string& name : submodules) {
    const build::Submodule& module = engines::submodule_named(name, *role_->build);
    files.insert(module.file);
    files.insert(module.weights.begin(), module.weights.end());
  }
  return files;
}

}  // namespace partc::shell
