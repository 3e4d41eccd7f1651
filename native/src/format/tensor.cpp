#include "format/tensor.hpp"

#include <algorithm>
#include <cstring>

#include "format/facts.gen.hpp"

namespace partc {

Frame Frame::copy(std::string_view bytes) {
  // Memory of `new` is aligned for every element type.
  std::shared_ptr<std::byte[]> memory(new std::byte[std::max<std::size_t>(bytes.size(), 1)]);
  if (!bytes.empty()) std::memcpy(memory.get(), bytes.data(), bytes.size());
  const std::byte* data = memory.get();
  return {std::move(memory), data, bytes.size()};
}

Tensor Tensor::int64(Shape shape, std::span<const std::int64_t> elements) {
  const std::string_view bytes(reinterpret_cast<const char*>(elements.data()), elements.size_bytes());
  return {element_type("int64"), std::move(shape), Frame::copy(bytes)};
}

Tensor to_tensor(const Frame& frame, std::string_view dtype, Shape shape) {
  const ElementType* type = element_type(dtype);
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(frame.data) % type->bytes == 0;
  return {type, std::move(shape), is_aligned ? frame : Frame::copy(frame.text())};
}

Frames split_frames(const Frame& frame) {
  Frames parts;
  for (std::size_t begin = 0; begin < frame.size; begin += FRAME_LIMIT) {
    parts.push_back(frame.part(begin, std::min<std::size_t>(begin + FRAME_LIMIT, frame.size)));
  }
  return parts;
}

Frame join_frames(const Frames& frames) {
  if (frames.size() == 1) return frames.front();
  std::string all;
  for (const Frame& frame : frames) all += frame.text();
  return Frame::copy(all);
}

}  // namespace partc
