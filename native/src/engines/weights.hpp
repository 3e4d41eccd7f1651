/** Weights of loaded sub-modules that compiled code reads as they lie in the files. */
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engines/memory.hpp"
#include "format/build.hpp"
#include "format/safetensors.hpp"

namespace partc::engines {

/** The weights of loaded sub-modules; a tensor that several of them name is there once.

One thread adds and removes sub-modules, while another one may ask for those that are there.
*/
class Weights {
 public:
  explicit Weights(std::string folder) : folder_(std::move(folder)) {}

  /** Types and shapes of the tensors of a sub-module, in the order of `names`; nothing of them is read.

  Throws a bundle error: a file is none of tensors, or none of them has a name.
  */
  std::vector<safetensors::Entry> entries(const build::Submodule& module,
                                                 const std::vector<std::string>& names);
  /** Read the tensors of a sub-module; throws as above. */
  void add(const build::Submodule& module, const std::vector<std::string>& names);
  /** Where they lie, in the order of the names. */
  std::vector<std::byte*> of(const std::string& submodule) const;
  /** Let go of what no other sub-module needs. */
  void remove(const std::string& submodule);

 private:
  using Key = std::pair<std::string, std::string>;  // file, name
  /** A tensor, and the pages that it lies in with others, which stay as long as one of them is needed. */
  struct Placed {
    std::shared_ptr<Pages> pages;
    std::byte* data;
  };

  std::vector<Key> find(const build::Submodule& module, const std::vector<std::string>& names);
  void read(const std::string& file, const std::vector<std::string>& fresh);

  std::string folder_;
  std::map<std::string, Map<std::string, safetensors::Entry>> entries_;
  std::map<Key, Placed> placed_;
  std::map<std::string, std::vector<Key>> of_;
  mutable std::mutex changing_;  // held where the two maps above are changed, or read by another thread
};

}  // namespace partc::engines
