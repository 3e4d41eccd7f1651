/** Files mapped to be read, for an engine that keeps most of what it reads in a form of its own. */
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace partc::engines {

/** Files that are mapped as long as this lives. */
class MappedFiles {
 public:
  MappedFiles() = default;
  /** Throws a bundle error without a place: a path is no file that holds something. */
  explicit MappedFiles(const std::vector<std::string>& paths);
  MappedFiles(MappedFiles&& other) noexcept { of_.swap(other.of_); }
  MappedFiles& operator=(MappedFiles&& other) noexcept {
    of_.swap(other.of_);
    return *this;
  }
  ~MappedFiles();

  /** Path → content. */
  const std::map<std::string, std::span<std::byte>>& of() const { return of_; }
  /** Take what was read of them out of memory; what is read again comes back from the system's cache. */
  void release() const;

 private:
  std::map<std::string, std::span<std::byte>> of_;
};

/** While it lives, files are released again and again; else they were there twice while an engine packs them.

A thread of its own does so: whoever reads lets nobody know how far it is.
*/
class ReleasedMeanwhile {
 public:
  explicit ReleasedMeanwhile(const MappedFiles& files);
  ~ReleasedMeanwhile();
  ReleasedMeanwhile(const ReleasedMeanwhile&) = delete;
  ReleasedMeanwhile& operator=(const ReleasedMeanwhile&) = delete;

 private:
  void release_often(std::uint64_t before);

  const MappedFiles& files_;
  std::atomic<bool> is_done_ = false;
  std::thread thread_;
};

/** Take what this process has read of mapped files of a folder out of its memory.

Engines that keep weights in a form of their own leave behind what they made it from. What is used again after all comes
back from the system's cache. Mappings that were written to are left alone.
*/
void release_mapped(const std::string& folder);

}  // namespace partc::engines
