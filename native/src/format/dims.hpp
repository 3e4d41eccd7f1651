// Sizes of tensors: a number, or a text such as `batch` or `2*sequence + 1` (partc/format/dims.py).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "format/plain.hpp"

namespace partc {

using Shape = std::vector<std::uint64_t>;

/// The value of an expression of symbols and numbers with `+ - * //` and parentheses.
/// Throws Error: a symbol has no size, the text is no expression, or the value is below 0 or not below 2^63.
std::uint64_t evaluate(const Size& size, const Dims& dims);

/// The same for each axis.
Shape evaluate_shape(const std::vector<Size>& shape, const Dims& dims);

/// The sizes of `count` parts that are as equal as whole numbers allow; some are 0 where there are more.
Shape cut_sizes(std::uint64_t size, std::uint64_t count);

/// The symbols that occur in it. Throws Error: the text is no expression.
std::set<std::string> symbols(const Size& size);

/// The product of sizes times the bytes of an element; 2^64 - 1 where that is more than can be.
std::uint64_t bytes_of(const Shape& shape, std::uint64_t element_bytes);

}  // namespace partc
