/** A thread that makes the engine, and loads and releases sub-modules while the device goes on working
(`partc/runtime/shell/loader.py`). */
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "core/commands.hpp"
#include "core/events.hpp"
#include "engines/contract.hpp"
#include "format/role.hpp"

namespace partc::shell {

/** Does one job after the other, and settles the engine between them; `results` has what came of the jobs, and `told`
is readable then.

Files are held against the build before they are used for the first time, and no sooner: a device may have copies of
large parts of the model that it never needs.
*/
class Loader {
 public:
  using Job = std::variant<core::Load, core::Release>;
  using Outcome = std::variant<core::Loaded, core::LoadFailed>;

  /** Nothing is done before `begin`. */
  Loader(RolePtr role, std::string folder);
  /** End the thread, after the jobs that it has. */
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /** Made by the first job, together with the sub-modules that the placement in force runs. */
  engines::Engine& engine() const { return *engine_; }
  /** Whether a job is under way or waits. None can be interrupted. */
  bool is_busy() const;
  int told() const { return told_; }
  /** Make the engine and load what the placement in force runs; `Loaded` tells of it. */
  void begin();
  /** Do this after all that was asked for before. */
  void add(Job job);
  /** Outcomes of the jobs that have ended since the last call. Throws an error of `begin`, or of a bug. */
  std::vector<Outcome> results();

 private:
  using Result = std::variant<Outcome, std::exception_ptr>;

  void work();
  void load_first();
  Outcome loaded(const core::Load& load);
  std::optional<Job> next();
  void tell(Result result);
  Error no_memory() const;
  std::set<std::string> files_of(const std::vector<std::string>& submodules) const;

  RolePtr role_;
  std::string folder_;
  std::set<std::string> verified_;
  std::unique_ptr<engines::Engine> engine_;
  mutable std::mutex changing_;  // held where what follows is used, down to `results_`
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool is_ending_ = false;
  std::size_t asked_ = 0, ended_ = 0;
  std::vector<Result> results_;
  int told_, teller_;
  std::thread thread_;
};

}  // namespace partc::shell
