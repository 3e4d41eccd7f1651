/** Work of the engine, in the order of the commands; loading alone has a thread of its own
(`partc/runtime/shell/work.py`). */
#pragma once

#include <deque>
#include <optional>
#include <variant>

#include "core/commands.hpp"
#include "core/events.hpp"
#include "engines/contract.hpp"
#include "shell/loader.hpp"

namespace partc::shell {

using Task =
    std::variant<core::Compute, core::Draw, core::Reset, core::ReadRows, core::WriteRows, core::Release, core::Load>;

/** Commands for the engine, first in first out: rows are read after the step that was commanded before.

A `Load` goes to the loader at once, beside what is computed. A `Release` goes there when its turn has come, so that
nothing that was commanded before still needs the sub-module; a `Load` that follows it waits behind it.
*/
class Work {
 public:
  /** There is nothing to do yet; the loader makes the engine before the first command needs it. */
  explicit Work(Loader& loader) : loader_(loader) {}

  bool empty() const { return tasks_.empty(); }
  /** Whether a sub-module is next, which takes its time. */
  bool computes_next() const { return !tasks_.empty() && std::holds_alternative<core::Compute>(tasks_.front()); }
  /** Do this after what was commanded before. */
  void add(Task task);
  /** What is next, which is no longer here then. */
  Task take();
  /** Have the engine, or the loader, do it; the event that follows, if one does.

  Throws a run error: rows that are not there were asked for.
  */
  std::optional<core::Event> done(Task& task);

 private:
  Loader& loader_;
  std::deque<Task> tasks_;
};

}  // namespace partc::shell
