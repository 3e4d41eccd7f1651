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
    /** Begins at a multiple of `alignment`, 0 or a power of two, up to which the memory behind it is nobody's.

    Throws a bundle error: it cannot be mapped; or bad_alloc.
    */
    explicit Mapping(const LocalFile& file, std::uint64_t alignment = 0);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    std::byte* data() const { return data_; }
    std::uint64_t size() const { return size_; }
    /** Let the file's own bytes be there again from `offset` on, a multiple of a page. */
    void restore(const LocalFile& file, std::uint64_t offset, std::uint64_t bytes) const;

   private:
    void* room_ = nullptr;
    std::uint64_t room_bytes_ = 0;
    std::byte* data_ = nullptr;
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
