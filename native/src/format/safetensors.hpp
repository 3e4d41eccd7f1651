// The header of a safetensors file (partc/format/safetensors.py); nothing in it is trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/dims.hpp"
#include "format/dtypes.hpp"
#include "format/value.hpp"

namespace partc::safetensors {

/// One tensor of a file.
struct Entry {
  const ElementType* type = nullptr;
  Shape shape;
  /// Offset of its first byte from the start of the file; it ends inside of the file.
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

class Header {
 public:
  /// Reads the header of a file that is mapped whole. Throws Error: its header is none.
  Header(std::string_view file, std::string where);

  std::vector<std::string> names() const;
  /// Type, shape and place of a tensor; none where there is no such tensor.
  /// Throws Error: it is not understood, or lies outside of the file.
  std::optional<Entry> entry(const std::string& name) const;

 private:
  std::string where_;
  std::uint64_t start_ = 0;
  std::uint64_t size_ = 0;
  Object raw_;
};

}  // namespace partc::safetensors
