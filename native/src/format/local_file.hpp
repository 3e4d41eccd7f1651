/** Files of a bundle, read from places in them. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace partc {

/** A file that is open to be read. */
class LocalFile {
 public:
  /** Throws a bundle error: it is missing, a link, no plain file, or may not be read. */
  explicit LocalFile(std::string path);
  ~LocalFile();
  LocalFile(const LocalFile&) = delete;
  LocalFile& operator=(const LocalFile&) = delete;

  std::uint64_t size() const { return size_; }
  /** Throws a bundle error: it cannot be read, or ends before. */
  void read(std::uint64_t offset, std::span<std::byte> memory) const;
  std::string read(std::uint64_t offset, std::uint64_t bytes) const;
  std::string whole() const { return read(0, size_); }
  /** Calls use(content), which is mapped and not read; what `use` does not look at takes no time. */
  template <class Use>
  auto mapped(Use use) const {
    const Mapping mapping(*this);
    return use(std::string_view(static_cast<const char*>(mapping.content), size_));
  }

 private:
  struct Mapping {
    explicit Mapping(const LocalFile& file);
    ~Mapping();
    void* content = nullptr;
    std::uint64_t size;
  };

  std::string path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace partc
