/** The process around a device: events of the transport go into the core, and its commands are carried out here
(`partc/runtime/shell/runner.py`). */
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/device/device.hpp"
#include "format/role.hpp"
#include "shell/loader.hpp"
#include "shell/sensors.hpp"
#include "shell/settings.hpp"
#include "shell/spin_wait.hpp"
#include "shell/standby.hpp"
#include "shell/strangers.hpp"
#include "shell/transport.hpp"
#include "shell/work.hpp"

namespace partc::shell {

/** One device of a ring. */
class Runner {
 public:
  /** Read the bundle and take the address; nothing is loaded yet.

  Throws a bundle error: the bundle or its keys are not what they should be; or a run error: the address cannot be had.
  */
  explicit Runner(Settings settings);

  /** Load the sub-modules, and work until asked to stop: by the client, by SIGTERM or SIGINT, or by the end of the input.

  Throws a bundle error: a file is damaged, or the engine cannot read it; or a run error: this device cannot be part of
  the ring.
  */
  void serve();

 private:
  std::unique_ptr<core::Device> new_device() const;
  void begin();
  void work_until_asked();

  // -- the loop

  void turn();
  void do_work();
  void look_after();
  void catch_up();
  std::vector<Event> events();
  std::optional<double> timeout() const;

  // -- events into the core

  void take(Event event);
  void take(const Input& input);
  void on(const core::Event& event);

  // -- commands out of it

  void perform(std::vector<core::Command> commands);
  void perform(core::Send& send);
  void perform(core::Connect& connect);
  void perform(core::ReadSensors&) { sensing_ = true; }
  void perform(core::Announce&);
  void perform(core::Log& log) { note(log.event, log.fields); }
  void perform(core::Leave& leave);
  template <class Task>
  void perform(Task& task) {
    work_.add(std::move(task));
  }

  // -- connections to other devices

  void meet(const std::map<std::string, std::string>& given);
  void note(std::string_view event, const Object& fields) const;
  void end(const std::string& reason);

  // -- the process that started this one

  void read_input();
  void tell(const Object& fields, const std::string& text) const;

  Settings settings_;
  StopSignals signals_;  // before anything else begins a thread, to which a signal could go
  RolePtr role_;
  std::unique_ptr<Transport> transport_;
  /** HOST:PORT that is bound. */
  std::string address_;
  std::unique_ptr<core::Device> device_;
  Loader loader_;
  Work work_;
  /** HOST:PORT of other devices, as it was given at start. */
  std::map<std::string, std::string> known_;
  /** Devices whose address is not known. */
  std::set<std::string> sought_;
  SpinWait spin_wait_;
  /** While the loop is worked. */
  std::optional<Standby> standby_;
  /** Found when somebody watches for the first time. */
  std::optional<Sensors> sensors_;
  bool stopping_ = false;
  /** Whether the sensors are to be read. */
  bool sensing_ = false;
  Strangers strangers_;
  std::string input_;
};

}  // namespace partc::shell
