/** Weights of loaded sub-modules that compiled code reads as they lie in the files. */
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "format/build.hpp"
#include "format/safetensors.hpp"

namespace partc::engines {

/** The tensors of a folder's files by name; of the files nothing but their heads is read. */
class WeightFiles {
 public:
  using Key = std::pair<std::string, std::string>;  // file, name

  explicit WeightFiles(std::string folder) : folder_(std::move(folder)) {}

  /** The file of each tensor; throws a bundle error: a file is none of tensors, or none of them has a name. */
  std::vector<Key> find(const build::Submodule& module, const std::vector<std::string>& names);
  const safetensors::Entry& entry(const Key& key) const { return entries_.at(key.first).at(key.second); }
  std::string path(const std::string& file) const { return folder_ + "/" + file; }

 private:
  std::string folder_;
  std::map<std::string, Map<std::string, safetensors::Entry>> entries_;
};

/** The weights of loaded sub-modules, each as a `T`; a tensor that several of them name is there once.

One thread adds and removes sub-modules, while another one may ask for those that are there.
*/
template <class T>
class Weights {
 public:
  /** Puts tensors of the file with this path where the code finds them. */
  using Read = std::function<std::vector<T>(const std::string&, const std::vector<safetensors::Entry>&)>;

  Weights(std::string folder, Read read) : files_(std::move(folder)), read_(std::move(read)) {}

  /** Types and shapes of the tensors of a sub-module, in the order of `names`; nothing of them is read.

  Throws a bundle error: a file is none of tensors, or none of them has a name.
  */
  std::vector<safetensors::Entry> entries(const build::Submodule& module, const std::vector<std::string>& names) {
    std::vector<safetensors::Entry> found;
    for (const Key& key : files_.find(module, names)) found.push_back(files_.entry(key));
    return found;
  }
  /** Read the tensors of a sub-module; throws as above. */
  void add(const build::Submodule& module, const std::vector<std::string>& names) {
    const std::vector<Key> keys = files_.find(module, names);
    for (const std::string& file : module.weights) read(file, keys);
    const std::lock_guard lock(changing_);
    of_[module.name] = keys;
  }
  /** The tensors of a sub-module, in the order of the names. */
  std::vector<T> of(const std::string& submodule) const {
    const std::lock_guard lock(changing_);
    std::vector<T> found;
    for (const Key& key : of_.at(submodule)) found.push_back(placed_.at(key));
    return found;
  }
  /** Let go of what no other sub-module needs. */
  void remove(const std::string& submodule) {
    const std::lock_guard lock(changing_);
    of_.erase(submodule);
    std::set<Key> used;
    for (const auto& [name, keys] : of_) used.insert(keys.begin(), keys.end());
    std::erase_if(placed_, [&](const auto& item) { return !used.contains(item.first); });
  }

 private:
  using Key = WeightFiles::Key;

  /** Those of a file that are not there yet. */
  void read(const std::string& file, const std::vector<Key>& keys) {
    std::vector<Key> fresh;
    std::vector<safetensors::Entry> entries;
    for (const Key& key : keys) {
      if (key.first != file || placed_.contains(key) || std::ranges::find(fresh, key) != fresh.end()) continue;
      fresh.push_back(key);
      entries.push_back(files_.entry(key));
    }
    std::vector<T> tensors = read_(files_.path(file), entries);
    const std::lock_guard lock(changing_);
    for (std::size_t i = 0; i < fresh.size(); ++i) placed_[fresh[i]] = std::move(tensors[i]);
  }

  WeightFiles files_;
  Read read_;
  std::map<Key, T> placed_;
  std::map<std::string, std::vector<Key>> of_;
  mutable std::mutex changing_;  // held where the two maps above are changed, or read by another thread
};

}  // namespace partc::engines
