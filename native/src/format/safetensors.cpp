#include "format/safetensors.hpp"

#include <utility>

#include "format/complaints.hpp"
#include "format/json.hpp"

namespace partc::safetensors {
namespace {

constexpr std::uint64_t MOST_HEADER_BYTES = 100'000'000;
constexpr Integer MOST = Integer{1} << 53;

/// A list of whole numbers below 2^53; none where it is something else.
std::optional<std::vector<std::uint64_t>> whole_numbers(const Value* value) {
  const List* list = value == nullptr ? nullptr : value->as<List>();
  if (list == nullptr) return {};
  std::vector<std::uint64_t> found;
  for (const Value& item : *list) {
    const Integer* number = item.as<Integer>();
    if (number == nullptr || *number < 0 || *number >= MOST) return {};
    found.push_back(static_cast<std::uint64_t>(*number));
  }
  return found;
}

}  // namespace

Header::Header(std::string_view file, std::string where) : where_(std::move(where)), size_(file.size()) {
  std::uint64_t length = 0;
  for (std::size_t at = std::min<std::size_t>(8, file.size()); at-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(file[at]);
  }
  if (file.size() < 8 || length > MOST_HEADER_BYTES || length > file.size() - 8) {
    throw recompile("damaged: its header is longer than the file", where_);
  }
  start_ = 8 + length;
  Value found = read_json(file.substr(8, length), where_);
  if (found.as<Object>() == nullptr) throw recompile("damaged: its header is not a mapping", where_);
  raw_ = std::get<Object>(std::move(found.data));
}

std::vector<std::string> Header::names() const {
  std::vector<std::string> found;
  for (const auto& [name, described] : raw_) {
    if (name != "__metadata__") found.push_back(name);
  }
  return found;
}

std::optional<Entry> Header::entry(const std::string& name) const {
  const Value* value = name == "__metadata__" ? nullptr : raw_.find(name);
  if (value == nullptr) return {};
  const Object* described = value->as<Object>();
  const Value* dtype = described == nullptr ? nullptr : described->find("dtype");
  const std::string* type_name = dtype == nullptr ? nullptr : dtype->as<std::string>();
  const auto shape = whole_numbers(described == nullptr ? nullptr : described->find("shape"));
  const auto offsets = whole_numbers(described == nullptr ? nullptr : described->find("data_offsets"));
  if (type_name == nullptr || !shape || !offsets || offsets->size() != 2) {
    throw recompile("damaged: tensor '" + name + "' has an entry that is not understood", where_);
  }
  const ElementType* type = safetensors_type(*type_name);
  if (type == nullptr) {
    throw recompile("tensor '" + name + "' has the element type " + *type_name + ", which partc does not read", where_);
  }
  const std::uint64_t first = (*offsets)[0], last = (*offsets)[1], bytes = bytes_of(*shape, type->bytes);
  if (last < first || last - first != bytes || last > size_ - start_) {
    throw recompile("damaged: tensor '" + name + "' lies outside the file, or its size is wrong", where_);
  }
  return Entry{type, *shape, start_ + first, bytes};
}

}  // namespace partc::safetensors
