/** Compiled libraries in memory, without a dynamic linker: a static program has none.

A library that partc compiles holds kernels, tables of constants, and the loop of `targets/tvm/loop/loop.c`. It needs a
few functions of libc and libm, no threads' own data, no constructors, no lazy binding. Whoever loads one has held its
bytes against the digest in build.json; the loader nevertheless trusts no number in them, so that a damaged file is an
error and not a read or a write somewhere else.

Its pages are anonymous, and no page is both written to and executed: the bytes are copied, relocated, and only then
made executable. So any size of page will do, and a file that is changed afterwards changes nothing.
*/
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace partc::engines {

/** A library in this process, until it is destroyed. */
class Code {
 public:
  /** Map the content of a file; `where` names it in errors.

  Throws a bundle error: it is no library for this processor, or it asks for something that this loader has not.
  */
  Code(std::span<const std::byte> file, std::string where);
  ~Code();
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  /** The address of a symbol that the library defines, with `bytes` bytes of the library behind it; else null. */
  void* find(std::string_view symbol, std::size_t bytes = 1) const;

 private:
  /** A part of the file that belongs into memory. */
  struct Segment {
    std::uint64_t begin, end;  // addresses in the library
    std::uint64_t file_end;    // of what the file holds; zeros lie behind it
    std::uint32_t rights;      // PF_R, PF_W, PF_X
  };
  /** A symbol as the file has it. */
  struct Symbol {
    std::uint32_t name;
    bool is_defined, is_weak;
    std::uint64_t value;
  };

  void read_segments(std::span<const std::byte> file);
  void reserve();
  void read_dynamic();
  void read_symbols();
  std::uint64_t count_symbols(std::uint64_t hash) const;
  Symbol symbol(std::uint64_t number) const;
  std::string_view text(std::uint64_t offset) const;
  void relocate(std::int64_t table, std::int64_t size);
  void relocate_one(std::uint64_t place, std::uint32_t kind, std::uint64_t symbol, std::int64_t addend);
  std::uint64_t resolve(std::uint64_t symbol) const;
  void protect();

  template <class T>
  T read(std::uint64_t address) const;
  bool lies_within(std::uint64_t address, std::uint64_t bytes, std::uint32_t rights) const;
  bool is_in_file(std::uint64_t address, std::uint64_t bytes) const;
  [[noreturn]] void refuse(const std::string& message) const;

  std::string where_;
  std::vector<Segment> segments_;
  std::byte* base_ = nullptr;
  std::uint64_t size_ = 0;  // bytes that are reserved from base_ on: whole pages
  std::uint64_t dynamic_ = 0, dynamic_end_ = 0;
  std::unordered_map<std::int64_t, std::uint64_t> entries_;  // of the dynamic section
  std::unordered_map<std::string_view, std::uint64_t> symbols_;
};

/** The function of libc or libm that a library may leave open; null where it is none of them. */
void* supplied(std::string_view symbol);

}  // namespace partc::engines
