#include "format/tensor.hpp"

#include <algorithm>
#include <cstring>

#include "errors.hpp"
#include "format/facts.gen.hpp"

namespace partc {
namespace {

/// A tensor as what lies before an axis sees it: `count` blocks, each with the bytes of all indices of the axis.
struct Blocks {
  Blocks(const Tensor& tensor, std::uint64_t axis) : index_bytes(tensor.type->bytes) {
    for (std::uint64_t at = 0; at < tensor.shape.size(); ++at) {
      if (at < axis) count *= tensor.shape[at];
      if (at > axis) index_bytes *= tensor.shape[at];
    }
    bytes = index_bytes * tensor.shape.at(axis);
  }

  std::uint64_t count = 1, index_bytes = 0, bytes = 0;
};

}  // namespace

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

Tensor part_of(const Tensor& whole, std::uint64_t axis, std::uint64_t begin, std::uint64_t end) {
  const Blocks blocks(whole, axis);
  const std::uint64_t first = begin * blocks.index_bytes, bytes = (end - begin) * blocks.index_bytes;
  Tensor part{whole.type, whole.shape, {}};
  part.shape[axis] = end - begin;
  if (blocks.count == 1) {
    part.bytes = whole.bytes.part(first, first + bytes);
    return part;
  }
  std::string copy;
  copy.reserve(bytes * blocks.count);
  for (std::uint64_t at = 0; at < blocks.count; ++at)
    copy += whole.bytes.text().substr(at * blocks.bytes + first, bytes);
  part.bytes = Frame::copy(copy);
  return part;
}

Tensor joined_tensors(const std::vector<Tensor>& parts, std::uint64_t axis) {
  Tensor whole{parts.front().type, parts.front().shape, {}};
  std::vector<Blocks> blocks;
  whole.shape.at(axis) = 0;
  for (const Tensor& part : parts) {
    blocks.emplace_back(part, axis);
    whole.shape[axis] += part.shape.at(axis);
    if (blocks.back().count != blocks.front().count) throw internal_error("values of unlike sizes are joined");
  }
  std::string bytes;
  bytes.reserve(bytes_of(whole.shape, whole.type->bytes));
  for (std::uint64_t at = 0; at < blocks.front().count; ++at)
    for (std::size_t part = 0; part < parts.size(); ++part)
      bytes += parts[part].bytes.text().substr(at * blocks[part].bytes, blocks[part].bytes);
  whole.bytes = Frame::copy(bytes);
  return whole;
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
