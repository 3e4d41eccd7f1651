#include "engines/mapped_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "errors.hpp"

namespace partc::engines {
namespace {

constexpr auto kReleaseEvery = std::chrono::milliseconds(2);
/** Bytes of mapped files that may be in memory while they are packed into a form of the engine's own. */
constexpr std::uint64_t kMostReadBytes = 16 << 20;

/** Bytes of files in this process's memory. */
std::uint64_t mapped_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0, resident = 0, shared = 0;
  file >> size >> resident >> shared;
  return shared * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/** The error of the last call to the system, as Python words it. */
Error failed(const std::string& path) {
  return bundle_error("[Errno " + std::to_string(errno) + "] " + std::strerror(errno) + ": '" + path + "'");
}

std::span<std::byte> mapping_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status)) throw failed(path);
  if (!status.st_size) throw bundle_error("cannot mmap an empty file");
  const auto size = static_cast<std::size_t>(status.st_size);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw failed(path);
  void* const content = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  close(file);  // which leaves errno as it is where it succeeds
  if (content == MAP_FAILED) throw failed(path);
  return {static_cast<std::byte*>(content), size};
}

}  // namespace

MappedFiles::MappedFiles(const std::vector<std::string>& paths) : MappedFiles() {
  for (const std::string& path : paths)
    if (!of_.contains(path)) of_[path] = mapping_of(path);
}

MappedFiles::~MappedFiles() {
  for (const auto& [path, content] : of_) munmap(content.data(), content.size());
}

void MappedFiles::release() const {
  for (const auto& [path, content] : of_) madvise(content.data(), content.size(), MADV_DONTNEED);
}

ReleasedMeanwhile::ReleasedMeanwhile(const MappedFiles& files) : files_(files) {
  if (!files.of().empty()) thread_ = std::thread([this, before = mapped_bytes()] { release_often(before); });
}

ReleasedMeanwhile::~ReleasedMeanwhile() {
  is_done_ = true;
  if (thread_.joinable()) thread_.join();
}

void ReleasedMeanwhile::release_often(std::uint64_t before) {
  for (; !is_done_; std::this_thread::sleep_for(kReleaseEvery)) {
    if (mapped_bytes() < before + kMostReadBytes) continue;
    files_.release();
    before = mapped_bytes();
  }
}

void release_mapped(const std::string& folder) {
  std::error_code none;
  const std::string root = std::filesystem::canonical(folder, none).string() + "/";
  std::ifstream file("/proc/self/smaps");
  std::uintptr_t begin = 0, end = 0;
  // Per mapping a line `start-end rights offset device inode path`, then lines `Key: number kB`.
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first, rights, offset, device, inode, path;
    words >> first;
    if (first.find('-') != std::string::npos && first.back() != ':') {
      words >> rights >> offset >> device >> inode >> std::ws;
      std::getline(words, path);
      const bool is_there = path.starts_with(root);
      begin = is_there ? std::stoull(first, nullptr, 16) : 0;
      end = is_there ? std::stoull(first.substr(first.find('-') + 1), nullptr, 16) : 0;
    } else if (begin != end && first == "Anonymous:") {
      std::uint64_t written = 0;
      words >> written;
      if (!written) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    }
  }
}

}  // namespace partc::engines
