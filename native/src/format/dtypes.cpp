#include "format/dtypes.hpp"

namespace partc {

const ElementType* element_type(std::string_view name) {
  for (const ElementType& row : ELEMENT_TYPES) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const ElementType* safetensors_type(std::string_view name) {
  for (const ElementType& row : ELEMENT_TYPES) {
    if (row.safetensors == name) return &row;
  }
  return nullptr;
}

}  // namespace partc
