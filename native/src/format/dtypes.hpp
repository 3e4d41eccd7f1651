// Rows of the table of element types (facts.gen.hpp).
#pragma once

#include <string_view>

#include "format/facts.gen.hpp"

namespace partc {

/// The type of a name as `float32`; null where there is none.
const ElementType* element_type(std::string_view name);
/// The type of a name in a safetensors header, as `F32`; null where there is none.
const ElementType* safetensors_type(std::string_view name);

}  // namespace partc
