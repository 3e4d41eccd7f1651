/** Sensors: what the system tells of memory, load, temperature and battery (`partc/runtime/shell/sensors.py` has the
table of files). */
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "format/messages.gen.hpp"

namespace partc::shell {

/** The sensors of this machine; the folders are listed once. */
class Sensors {
 public:
  /** Find the sensors below what PARTC_SYS says, else `/`. */
  Sensors();

  /** All readings; takes well below a millisecond. */
  messages::Readings read() const;

 private:
  using Paths = std::vector<std::filesystem::path>;

  std::optional<double> temperature() const;
  std::optional<double> charge() const;
  std::optional<bool> is_plugged() const;

  std::filesystem::path proc_;
  Paths zones_, batteries_, mains_;
};

}  // namespace partc::shell
