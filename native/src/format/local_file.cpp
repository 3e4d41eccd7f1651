#include "format/local_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "format/complaints.hpp"

namespace partc {
namespace {

Error unreadable(const std::string& path, int number) {
  if (number == ENOENT) return recompile("the file is missing", path);
  if (number == ELOOP) return recompile("a symbolic link has no place in a bundle", path);
  return bundle_error(std::string("cannot be read: ") + std::strerror(number), path,
                      "give the user of this process the right to read it");
}

}  // namespace

LocalFile::LocalFile(std::string path) : path_(std::move(path)) {
  file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file_ < 0) throw unreadable(path_, errno);
  struct stat status {};
  const bool is_plain = fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  if (!is_plain || status.st_nlink > 1) {
    close(file_);
    if (!is_plain) throw recompile("neither a file nor a folder", path_);
    throw bundle_error("a hard link has no place in a bundle", path_, "copy the file instead");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

LocalFile::~LocalFile() { close(file_); }

LocalFile::Mapping::Mapping(const LocalFile& file, std::uint64_t alignment) : size_(file.size_) {
  if (size_ == 0) return;
  room_bytes_ = size_ + 2 * alignment;
  room_ = mmap(nullptr, room_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room_ == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(room_);
  if (alignment) data_ += -reinterpret_cast<std::uintptr_t>(room_) % alignment;
  const void* const content = mmap(data_, size_, PROT_READ, MAP_PRIVATE | MAP_FIXED, file.file_, 0);
  if (content != MAP_FAILED) return;
  const int error = errno;
  munmap(room_, room_bytes_);
  if (error == ENOMEM) throw std::bad_alloc();
  throw unreadable(file.path_, error);
}

LocalFile::Mapping::~Mapping() {
  if (size_) munmap(room_, room_bytes_);
}

void LocalFile::Mapping::restore(const LocalFile& file, std::uint64_t offset, std::uint64_t bytes) const {
  const int how = MAP_PRIVATE | MAP_FIXED;
  const void* const content =
      mmap(data_ + offset, std::min(bytes, size_ - offset), PROT_READ, how, file.file_, static_cast<off_t>(offset));
  if (content == MAP_FAILED) throw std::bad_alloc();
}

void LocalFile::read(std::uint64_t offset, std::span<std::byte> memory) const {
  while (!memory.empty()) {
    const ssize_t count = pread(file_, memory.data(), memory.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw unreadable(path_, errno);
    if (count == 0) throw recompile("the file is shorter than its header says", path_);
    memory = memory.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

std::string LocalFile::read(std::uint64_t offset, std::uint64_t bytes) const {
  std::string text(bytes, '\0');
  read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace partc
