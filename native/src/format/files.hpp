// The files of a device's folder: read into a role, and held against build.json (partc/format/files.py, role.py).
#pragma once

#include <functional>
#include <string>

#include "format/role.hpp"

namespace partc {

/// Reads and checks the two JSON files of a device's folder, without opening the files that they name.
/// Throws Error: with the file, the key that is wrong, and the remedy.
RolePtr load_role(const std::string& folder);

/// Placements for each loss that the build survives; none on all devices but the source
/// (partc/format/contingencies.py). Throws Error: a file is missing, damaged, of another build, or asks for what the
/// source does not have.
std::vector<placement::Placement> load_contingencies(const Role& role, const std::string& folder);

/// Holds every file of a device's folder against the digest in its build; O(bytes of the bundle).
///
/// Those that are `later` are left to `verify_file`, once they are needed. Throws Error: naming the first file that is
/// missing, changed, not listed, or a link.
void verify_files(const std::string& folder, const Map<std::string, build::FileEntry>& files,
                  const std::function<bool(const std::string&)>& later);

/// Holds one file against its digest; O(bytes of the file). Throws Error: it is missing, changed, or a link.
void verify_file(const std::string& folder, const std::string& name, const build::FileEntry& entry);

/// The content of a file of the bundle: the very bytes whose digest was held against the build, whatever becomes of the
/// file. Throws Error: as above, or the build does not list it.
std::string read_verified(const build::Build& build, const std::string& folder, const std::string& name);

}  // namespace partc
