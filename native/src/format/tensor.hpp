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

/// The indices from `begin` to before `end` of an axis; a view where they lie side by side, else a copy.
Tensor part_of(const Tensor& whole, std::uint64_t axis, std::uint64_t begin, std::uint64_t end);

/// Tensors one behind the other along an axis. Throws Error: their other sizes are unlike.
Tensor joined_tensors(const std::vector<Tensor>& parts, std::uint64_t axis);

/// Bytes in frames that every participant takes.
Frames split_frames(const Frame& frame);

/// All frames as one.
Frame join_frames(const Frames& frames);

}  // namespace partc
