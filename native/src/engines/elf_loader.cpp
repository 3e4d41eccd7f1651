#include "engines/elf_loader.hpp"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "errors.hpp"

namespace partc::engines {
namespace {

#if defined(__aarch64__)
constexpr std::uint32_t kMachine = EM_AARCH64, kRelative = R_AARCH64_RELATIVE, kAbsolute = R_AARCH64_ABS64,
                        kData = R_AARCH64_GLOB_DAT, kCall = R_AARCH64_JUMP_SLOT;
#elif defined(__x86_64__)
constexpr std::uint32_t kMachine = EM_X86_64, kRelative = R_X86_64_RELATIVE, kAbsolute = R_X86_64_64,
                        kData = R_X86_64_GLOB_DAT, kCall = R_X86_64_JUMP_SLOT;
#else
#error "libraries are compiled for x86-64 and aarch64"
#endif

/** Far more than a library of kernels has; keeps sums of two numbers of a file below 2^64. */
constexpr std::uint64_t kLargest = 1ull << 32;

std::uint64_t page() {
  static const auto size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::uint64_t page_begin(std::uint64_t address) { return address / page() * page(); }

std::uint64_t page_end(std::uint64_t address) { return page_begin(address + page() - 1); }

}  // namespace

Code::Code(std::span<const std::byte> file, std::string where) : where_(std::move(where)) {
  read_segments(file);
  reserve();
  try {
    std::uint64_t number = 0;
    Elf64_Ehdr head;
    std::memcpy(&head, file.data(), sizeof head);
    for (Elf64_Phdr part; number < head.e_phnum; ++number) {
      std::memcpy(&part, file.data() + head.e_phoff + number * sizeof part, sizeof part);
      if (part.p_type == PT_LOAD) std::memcpy(base_ + part.p_vaddr, file.data() + part.p_offset, part.p_filesz);
    }
    read_dynamic();
    read_symbols();
    relocate(DT_RELA, DT_RELASZ);
    relocate(DT_JMPREL, DT_PLTRELSZ);
    protect();
  } catch (...) {
    munmap(base_, size_);
    throw;
  }
}

Code::~Code() { munmap(base_, size_); }

void Code::refuse(const std::string& message) const {
  throw bundle_error("it cannot be loaded: " + message, where_, kRecompile);
}

/** Where the parts of the file belong; every number that the constructor uses afterwards is checked here. */
void Code::read_segments(std::span<const std::byte> file) {
  Elf64_Ehdr head;
  if (file.size() < sizeof head) refuse("it is no library");
  std::memcpy(&head, file.data(), sizeof head);
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_type != ET_DYN)
    refuse("it is no library of 64 bits");
  if (head.e_machine != kMachine) refuse("it is for another processor");
  if (head.e_phentsize != sizeof(Elf64_Phdr) || head.e_phoff > file.size() ||
      head.e_phnum > (file.size() - head.e_phoff) / sizeof(Elf64_Phdr))
    refuse("its table of segments is damaged");
  for (std::uint64_t number = 0; number < head.e_phnum; ++number) {
    Elf64_Phdr part;
    std::memcpy(&part, file.data() + head.e_phoff + number * sizeof part, sizeof part);
    if (part.p_type == PT_TLS) refuse("it has data for each thread");
    if (part.p_type == PT_DYNAMIC) dynamic_ = part.p_vaddr, dynamic_end_ = part.p_vaddr + part.p_memsz;
    if (part.p_type != PT_LOAD) continue;
    if (part.p_vaddr > kLargest || part.p_memsz > kLargest || part.p_filesz > part.p_memsz ||
        part.p_offset > file.size() || part.p_filesz > file.size() - part.p_offset)
      refuse("a segment lies outside of it");
    if ((part.p_flags & PF_W) && (part.p_flags & PF_X)) refuse("a segment would be written to and executed");
    segments_.push_back({part.p_vaddr, part.p_vaddr + part.p_memsz, part.p_vaddr + part.p_filesz, part.p_flags});
  }
  std::uint64_t end = 0;
  for (const Segment& segment : segments_) {  // in the order of their addresses, as the format demands
    if (page_begin(segment.begin) < end) refuse("its segments share pages");
    end = page_end(segment.end);
  }
  if (segments_.empty() || !dynamic_) refuse("it is no library");
}

/** Addresses for the whole library, and memory for its segments. */
void Code::reserve() {
  size_ = page_end(segments_.back().end);
  void* pages = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) refuse(std::strerror(errno));
  base_ = static_cast<std::byte*>(pages);
  for (const Segment& segment : segments_) {
    const std::uint64_t begin = page_begin(segment.begin), bytes = page_end(segment.end) - begin;
    if (mprotect(base_ + begin, bytes, PROT_READ | PROT_WRITE)) {
      const std::string reason = std::strerror(errno);
      munmap(base_, size_);
      refuse(reason);
    }
  }
}

bool Code::lies_within(std::uint64_t address, std::uint64_t bytes, std::uint32_t rights) const {
  return std::ranges::any_of(segments_, [&](const Segment& segment) {
    return address >= segment.begin && address <= segment.end && bytes <= segment.end - address &&
           (segment.rights & rights) == rights;
  });
}

/** Tables are in the file: none of them is longer than it, whatever sizes it claims. */
bool Code::is_in_file(std::uint64_t address, std::uint64_t bytes) const {
  return std::ranges::any_of(segments_, [&](const Segment& segment) {
    return address >= segment.begin && address <= segment.file_end && bytes <= segment.file_end - address;
  });
}

template <class T>
T Code::read(std::uint64_t address) const {
  if (!is_in_file(address, sizeof(T))) refuse("a table lies outside of it");
  T value;
  std::memcpy(&value, base_ + address, sizeof value);
  return value;
}

void Code::read_dynamic() {
  for (std::uint64_t at = dynamic_; at < dynamic_end_; at += sizeof(Elf64_Dyn)) {
    const auto entry = read<Elf64_Dyn>(at);
    if (entry.d_tag == DT_NULL) break;
    entries_[entry.d_tag] = entry.d_un.d_val;
  }
  constexpr std::int64_t kPacked = 36;  // DT_RELR, which older headers do not name
  for (const std::int64_t tag : {std::int64_t{DT_REL}, std::int64_t{DT_TEXTREL}, kPacked})
    if (entries_.contains(tag)) refuse("it has relocations of another kind");
  for (const std::int64_t tag : {DT_SYMTAB, DT_STRTAB, DT_STRSZ})
    if (!entries_.contains(tag)) refuse("it has no table of symbols");
}

/** The number of symbols is nowhere said: it is the length of the table of hashes. */
std::uint64_t Code::count_symbols(std::uint64_t hash) const {
  const auto buckets = read<std::uint32_t>(hash), first = read<std::uint32_t>(hash + 4),
             words = read<std::uint32_t>(hash + 8);
  const std::uint64_t bucket = hash + 16 + 8ull * words, chain = bucket + 4ull * buckets;
  std::uint64_t last = 0;
  for (std::uint64_t number = 0; number < buckets; ++number)
    last = std::max<std::uint64_t>(last, read<std::uint32_t>(bucket + 4 * number));
  if (last < first) return first;
  while (!(read<std::uint32_t>(chain + 4 * (last - first)) & 1)) ++last;  // the last chain ends at the last symbol
  return last + 1;
}

Code::Symbol Code::symbol(std::uint64_t number) const {
  const auto found = read<Elf64_Sym>(entries_.at(DT_SYMTAB) + number * sizeof(Elf64_Sym));
  const auto kind = ELF64_ST_TYPE(found.st_info);
  const bool is_plain = kind == STT_FUNC || kind == STT_OBJECT || kind == STT_NOTYPE;
  return {found.st_name, found.st_shndx != SHN_UNDEF && is_plain, ELF64_ST_BIND(found.st_info) == STB_WEAK,
          found.st_value};
}

std::string_view Code::text(std::uint64_t offset) const {
  const std::uint64_t begin = entries_.at(DT_STRTAB), bytes = entries_.at(DT_STRSZ);
  if (!is_in_file(begin, bytes) || offset >= bytes) refuse("a name lies outside of it");
  const auto* name = reinterpret_cast<const char*>(base_ + begin + offset);
  const std::size_t length = strnlen(name, bytes - offset);
  if (length == bytes - offset) refuse("a name has no end");
  return {name, length};
}

void Code::read_symbols() {
  const auto hash = entries_.find(DT_GNU_HASH);
  if (hash == entries_.end()) refuse("it has no table of hashes");
  const std::uint64_t count = count_symbols(hash->second);
  for (std::uint64_t number = 1; number < count; ++number) {
    const Symbol found = symbol(number);
    if (found.is_defined) symbols_[text(found.name)] = found.value;
  }
}

void Code::relocate(std::int64_t table, std::int64_t size) {
  if (!entries_.contains(table)) return;
  const std::uint64_t begin = entries_.at(table);
  const std::uint64_t bytes = entries_.contains(size) ? entries_.at(size) : 0;
  if (bytes % sizeof(Elf64_Rela) || !is_in_file(begin, bytes)) refuse("its relocations lie outside of it");
  for (std::uint64_t at = begin; at < begin + bytes; at += sizeof(Elf64_Rela)) {
    const auto entry = read<Elf64_Rela>(at);
    relocate_one(entry.r_offset, static_cast<std::uint32_t>(ELF64_R_TYPE(entry.r_info)), ELF64_R_SYM(entry.r_info),
                 entry.r_addend);
  }
}

void Code::relocate_one(std::uint64_t place, std::uint32_t kind, std::uint64_t symbol, std::int64_t addend) {
  if (!lies_within(place, sizeof(std::uint64_t), PF_W)) refuse("a relocation lies outside of its data");
  std::uint64_t value = reinterpret_cast<std::uint64_t>(base_);
  if (kind == kAbsolute || kind == kData || kind == kCall) value = resolve(symbol);
  else if (kind != kRelative) refuse("a relocation of kind " + std::to_string(kind));
  value += static_cast<std::uint64_t>(addend);
  std::memcpy(base_ + place, &value, sizeof value);
}

std::uint64_t Code::resolve(std::uint64_t number) const {
  const Symbol found = symbol(number);
  if (found.is_defined) return reinterpret_cast<std::uint64_t>(base_) + found.value;
  const std::string_view name = text(found.name);
  void* function = supplied(name);
  if (!function && !found.is_weak) refuse("it needs " + std::string(name) + ", which this runner has not");
  return reinterpret_cast<std::uint64_t>(function);
}

void Code::protect() {
  for (const Segment& segment : segments_) {
    const std::uint64_t begin = page_begin(segment.begin), bytes = page_end(segment.end) - begin;
    const int rights = PROT_READ | (segment.rights & PF_W ? PROT_WRITE : 0) | (segment.rights & PF_X ? PROT_EXEC : 0);
    if (mprotect(base_ + begin, bytes, rights)) refuse(std::strerror(errno));
    if (segment.rights & PF_X) {
      auto* code = reinterpret_cast<char*>(base_ + begin);
      __builtin___clear_cache(code, code + bytes);
    }
  }
}

void* Code::find(std::string_view symbol, std::size_t bytes) const {
  const auto found = symbols_.find(symbol);
  if (found == symbols_.end() || !lies_within(found->second, bytes, 0)) return nullptr;
  return base_ + found->second;
}

}  // namespace partc::engines
