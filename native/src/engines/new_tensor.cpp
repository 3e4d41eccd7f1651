#include "engines/new_tensor.hpp"

#include <vector>

#include "format/text.hpp"

namespace partc::engines {

std::string type_text(std::string_view dtype, const Shape& shape) {
  std::vector<std::string> sizes;
  for (const std::uint64_t size : shape) sizes.push_back(std::to_string(size));
  return std::string(dtype) + "[" + joined(sizes, ", ") + "]";
}

}  // namespace partc::engines
