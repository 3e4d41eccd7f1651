/** Tensors while they are made: nobody changes a `Tensor`. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "format/tensor.hpp"

namespace partc::engines {

/** Memory of a tensor, not set to anything. */
class NewTensor {
 public:
  NewTensor(const ElementType& type, Shape shape)
      : type_(&type),
        shape_(std::move(shape)),
        bytes_(bytes_of(shape_, type.bytes)),
        memory_(new std::byte[bytes_ ? bytes_ : 1]) {}

  std::byte* data() { return memory_.get(); }
  std::uint64_t bytes() const { return bytes_; }
  Tensor take() {
    const std::byte* data = memory_.get();
    return {type_, std::move(shape_), {std::move(memory_), data, bytes_}};
  }

 private:
  const ElementType* type_;
  Shape shape_;
  std::uint64_t bytes_;
  std::shared_ptr<std::byte[]> memory_;
};

/** `float32[1, 3]`, as errors name a tensor. */
std::string type_text(std::string_view dtype, const Shape& shape);

}  // namespace partc::engines
