// Tensors, and the frames of messages that hold their bytes (partc/format/frames.py).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/dims.hpp"
#include "format/dtypes.hpp"
#include "format/messages.gen.hpp"

namespace partc {

/// Bytes that nobody changes, and whoever keeps them alive.
struct Frame {
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  std::size_t size = 0;

  std::string_view text() const { return {reinterpret_cast<const char*>(data), size}; }
  Frame part(std::size_t begin, std::size_t end) const { return {owner, data + begin, end - begin}; }
  /// A frame of its own memory.
  static Frame copy(std::string_view bytes);
};

using Frames = std::vector<Frame>;

/// Elements in row-major order, little-endian, without padding. Nobody changes them.
struct Tensor {
  const ElementType* type = nullptr;
  Shape shape;
  Frame bytes;

  /// The elements, where `T` is how they are held.
  template <class T>
  std::span<const T> elements() const {
    return {reinterpret_cast<const T*>(bytes.data), bytes.size / sizeof(T)};
  }
  static Tensor int64(Shape shape, std::span<const std::int64_t> elements);
};

/// Values by name, in their order.
using Tensors = Map<std::string, Tensor>;

/// A tensor over the bytes of a frame, of a known type; they are copied where they are not aligned for it.
Tensor to_tensor(const Frame& frame, std::string_view dtype, Shape shape);

/// Bytes in frames that every participant takes.
Frames split_frames(const Frame& frame);

/// All frames as one.
Frame join_frames(const Frames& frames);

}  // namespace partc
