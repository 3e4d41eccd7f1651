#include "shell/work.hpp"

#include <algorithm>
#include <utility>

#include "core/device/sampling.hpp"
#include "errors.hpp"
#include "shell/clock.hpp"

namespace partc::shell {
namespace {

using core::Event;

/** The values that `compute` makes, and the time that it takes. */
template <class Compute>
Event timed(Compute compute) {
  const double began = monotonic();
  std::vector<Tensor> values = compute();
  return core::Computed{std::move(values), monotonic() - began};
}

/** What `compute` answers, or the error of a run. */
template <class Compute>
Event tried(Compute compute) {
  try {
    return compute();
  } catch (const Error& error) {
    if (error.kind != ErrorKind::run) throw;
    return core::ComputeFailed{error};
  }
}

/** A task for the engine; the loader has its own. */
struct Doing {
  using Answer = std::optional<Event>;
  engines::Engine& engine;

  Answer operator()(core::Compute& task) const {
    return tried([&] {
      if (task.resets) engine.reset(task.slot, task.dims);
      return timed([&] {
        if (task.others.empty()) return engine.run(task.submodule, task.slot, task.inputs, task.dims);
        engines::Slots slots{task.slot};
        slots.insert(slots.end(), task.others.begin(), task.others.end());
        return engine.run_shared(task.submodule, slots, task.inputs, task.dims);
      });
    });
  }
  Answer operator()(core::Draw& task) const {
    return tried([&] { return timed([&] { return core::drawn(task); }); });
  }
  Answer operator()(core::Reset& task) const {
    engine.reset(task.slot, task.dims);
    return {};
  }
  Answer operator()(core::ReadRows& task) const {
    return core::RowsRead{engine.read_rows(task.submodule, task.slot, task.state, task.row, task.begin, task.end)};
  }
  Answer operator()(core::WriteRows& task) const {
    engine.write_rows(task.submodule, task.slot, task.state, task.row, task.begin, task.rows);
    return {};
  }
};

}  // namespace

void Work::add(Task task) {
  const auto releases = [](const Task& other) { return std::holds_alternative<core::Release>(other); };
  if (auto* load = std::get_if<core::Load>(&task); load && std::ranges::none_of(tasks_, releases)) {
    loader_.add(std::move(*load));
  } else {
    tasks_.push_back(std::move(task));
  }
}

Task Work::take() {
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  return task;
}

std::optional<Event> Work::done(Task& task) {
  return std::visit(
      [this](auto& one) -> std::optional<Event> {
        using One = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<One, core::Load> || std::is_same_v<One, core::Release>) {
          loader_.add(std::move(one));
          return {};
        } else {
          return Doing{loader_.engine()}(one);
        }
      },
      task);
}

}  // namespace partc::shell
