#include "engines/weights.hpp"

#include <algorithm>
#include <set>
#include <span>

#include "errors.hpp"
#include "format/local_file.hpp"

namespace partc::engines {
namespace {

Map<std::string, safetensors::Entry> entries_of(const std::string& path) {
  return LocalFile(path).mapped([&](std::string_view content) {
    const safetensors::Header header(content, path);
    Map<std::string, safetensors::Entry> found;
    for (const std::string& name : header.names()) found.set(name, header.entry(name).value());
    return found;
  });
}

}  // namespace

std::vector<Weights::Key> Weights::find(const build::Submodule& module, const std::vector<std::string>& names) {
  for (const std::string& file : module.weights)
    if (!entries_.contains(file)) entries_[file] = entries_of(folder_ + "/" + file);
  std::vector<Key> keys;
  for (const std::string& name : names) {
    // Where two files have the name, the last one counts.
    const auto file = std::find_if(module.weights.rbegin(), module.weights.rend(),
                                   [&](const std::string& one) { return entries_.at(one).contains(name); });
    if (file == module.weights.rend())
      throw bundle_error("no file of " + module.name + " has the weight '" + name + "'", folder_, kRecompile);
    keys.emplace_back(*file, name);
  }
  return keys;
}

std::vector<safetensors::Entry> Weights::entries(const build::Submodule& module,
                                                 const std::vector<std::string>& names) {
  std::vector<safetensors::Entry> found;
  for (const auto& [file, name] : find(module, names)) found.push_back(entries_.at(file).at(name));
  return found;
}

void Weights::add(const build::Submodule& module, const std::vector<std::string>& names) {
  const std::vector<Key> keys = find(module, names);
  for (const std::string& file : module.weights) {
    std::set<std::string> seen;
    std::vector<std::string> fresh;
    for (const auto& [home, name] : keys)
      if (home == file && seen.insert(name).second && !placed_.contains({file, name}))
        fresh.push_back(name);
    read(file, fresh);
  }
  const std::lock_guard lock(changing_);
  of_[module.name] = keys;
}

/** Tensors of a file side by side in memory of their own: pages of a mapped file are small ones. */
void Weights::read(const std::string& file, const std::vector<std::string>& fresh) {
  const Map<std::string, safetensors::Entry>& entries = entries_.at(file);
  std::uint64_t bytes = 0;
  for (const std::string& name : fresh) bytes += aligned(entries.at(name).bytes);
  const auto pages = std::make_shared<Pages>(bytes, Pages::Size::large);
  const LocalFile source(folder_ + "/" + file);
  std::byte* data = pages->data();
  for (const std::string& name : fresh) {
    const safetensors::Entry& entry = entries.at(name);
    source.read(entry.offset, {data, entry.bytes});
    const std::lock_guard lock(changing_);
    placed_[{file, name}] = {pages, data};
    data += aligned(entry.bytes);
  }
}

std::vector<std::byte*> Weights::of(const std::string& submodule) const {
  const std::lock_guard lock(changing_);
  std::vector<std::byte*> found;
  for (const Key& key : of_.at(submodule)) found.push_back(placed_.at(key).data);
  return found;
}

void Weights::remove(const std::string& submodule) {
  const std::lock_guard lock(changing_);
  of_.erase(submodule);
  std::set<Key> used;
  for (const auto& [name, keys] : of_) used.insert(keys.begin(), keys.end());
  std::erase_if(placed_, [&](const auto& item) { return !used.contains(item.first); });
}

}  // namespace partc::engines
