#include "format/files.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "format/complaints.hpp"
#include "format/digests.hpp"
#include "format/facts.gen.hpp"
#include "format/local_file.hpp"
#include "format/text.hpp"

namespace partc {
namespace {

namespace fs = std::filesystem;

constexpr const char* KEYS_FOLDER = "keys";
constexpr const char* PLACEMENTS_FOLDER = "placements";
constexpr const char* RUNNER_FILE = "partc-runner";

constexpr std::uint64_t MOST_BYTES = 64 << 20;  // no file that is read whole is larger

std::string path_in(const std::string& folder, std::string_view name) { return folder + "/" + std::string(name); }

std::string text_of(const std::string& path) {
  const LocalFile file(path);
  if (file.size() > MOST_BYTES) throw recompile("it is too large", path);
  return file.whole();
}

Error unreadable(const std::string& path, const std::error_code& error) {
  return bundle_error("cannot be read: " + error.message(), path, "give the user of this process the right to read it");
}

Error no_bundle(const std::string& folder) {
  std::error_code ignored;
  if (fs::exists(path_in(folder, "manifest.json"), ignored))
    return recompile("a bundle of format 1 (manifest.json), which this partc does not read", folder);
  return bundle_error("no bundle: there is no " + std::string(BUILD_FILE), folder,
                      "--bundle takes the folder of one device: build/devices/NAME");
}

Error damaged(const std::string& path) {
  return bundle_error(
      "the file is damaged: its SHA-256 is not that of " + std::string(BUILD_FILE), path,
      "copy the device folder again; if the build has it so, compile again: partc compile MODEL --target "
      "DEVICES --no-cache");
}

/// Names of all files below a folder, without those that are sealed by themselves; links are refused.
void walk(const std::string& folder, const std::string& prefix, std::set<std::string>& names) {
  std::error_code error;
  fs::directory_iterator entries(folder + "/" + prefix, error);
  if (error) throw unreadable(folder + "/" + prefix, error);
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = prefix + entries->path().filename().string();
    if (entries->is_symlink(error)) throw recompile("a symbolic link has no place in a bundle", path_in(folder, name));
    if (name == BUILD_FILE || name == PLACEMENT_FILE || name == RUNNER_FILE || name == KEYS_FOLDER ||
        name == PLACEMENTS_FOLDER) {
      continue;
    }
    if (entries->is_directory(error)) {
      walk(folder, name + "/", names);
    } else {
      names.insert(name);
    }
  }
}

placement::Placement load_contingency(const Role& role, const std::string& lost, const std::string& path) {
  placement::Placement placement = placement::parse_placement(text_of(path), path);
  if (placement.source != role.source() || std::ranges::find(placement.ring, lost) != placement.ring.end()) {
    throw recompile("it is no placement for the loss of " + lost, path);
  }
  if (placement.plan_id != role.build->plan_id) {
    throw recompile("it is of another build than " + std::string(BUILD_FILE), path);
  }
  check_role(Role(role.build, placement), path);
  return placement;
}

}  // namespace

RolePtr load_role(const std::string& folder) {
  const std::string build_path = path_in(folder, BUILD_FILE), placement_path = path_in(folder, PLACEMENT_FILE);
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(build_path, ignored))) throw no_bundle(folder);
  auto build = std::make_shared<const build::Build>(build::parse_build(text_of(build_path), build_path));
  auto placement = placement::parse_placement(text_of(placement_path), placement_path);
  RolePtr role = std::make_shared<const Role>(std::move(build), std::move(placement));
  check_role(*role, folder);
  return role;
}

std::vector<placement::Placement> load_contingencies(const Role& role, const std::string& folder) {
  std::vector<placement::Placement> found;
  if (!role.is_source()) return found;
  for (const std::string& lost : role.build->survives) {
    const std::string name = path_in(PLACEMENTS_FOLDER, "without-" + lost + ".json");
    found.push_back(load_contingency(role, lost, path_in(folder, name)));
  }
  return found;
}

void verify_files(const std::string& folder, const Map<std::string, build::FileEntry>& files,
                  const std::function<bool(const std::string&)>& later) {
  std::set<std::string> there, listed;
  walk(folder, "", there);
  for (const auto& [name, entry] : files) listed.insert(name);
  for (const std::string& name : there) {
    if (!listed.contains(name)) {
      throw bundle_error("not a part of this bundle", path_in(folder, name),
                         std::string("remove it, or ") + kRecompile);
    }
  }
  for (const std::string& name : listed) {
    if (!later(name)) verify_file(folder, name, files.at(name));
  }
}

void verify_file(const std::string& folder, const std::string& name, const build::FileEntry& entry) {
  const std::string path = path_in(folder, name);
  if (LocalFile(path).size() == entry.bytes && file_digest(path) == entry.sha256) return;
  throw damaged(path);
}

std::string read_verified(const build::Build& build, const std::string& folder, const std::string& name) {
  const build::FileEntry* entry = build.files.find(name);
  if (!entry) throw recompile(in_quotes(name) + " is not among the files", folder);
  const std::string path = path_in(folder, name);
  const LocalFile file(path);
  std::string content = file.size() == entry->bytes ? file.whole() : "";
  if (content.size() == entry->bytes && sha256_hex(content) == entry->sha256) return content;
  throw damaged(path);
}

}  // namespace partc
