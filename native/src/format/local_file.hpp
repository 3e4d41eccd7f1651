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
  /** Its content in memory, not read: what nobody looks at takes no time. */
  class Mapping {
   public:
    /** Throws a bundle error: it cannot be mapped. */
    explicit Mapping(const LocalFile& file);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    std::byte* data() const { return static_cast<std::byte*>(content_); }
    std::uint64_t size() const { return size_; }

   private:
    void* content_ = nullptr;
    std::uint64_t size_;
  };
  /** Calls use(content), which is mapped as long as that takes. */
  template <class Use>
  auto mapped(Use use) const {
    const Mapping mapping(*this);
    return use(std::string_view(reinterpret_cast<const char*>(mapping.data()), size_));
  }

 private:
  std::string path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace partc
