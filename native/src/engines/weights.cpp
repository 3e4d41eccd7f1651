#include "engines/weights.hpp"

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

std::vector<WeightFiles::Key> WeightFiles::find(const build::Submodule& module, const std::vector<std::string>& names) {
  for (const std::string& file : module.weights)
    if (!entries_.contains(file)) entries_[file] = entries_of(path(file));
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

}  // namespace partc::engines
