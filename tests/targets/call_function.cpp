// call_function LIBRARY FUNCTION ARGUMENTS RESULTS: call one function with the tensors "0", "1", ... of a safetensors
// file; write its outputs and then all arguments, whose states it changed. A tensor is written as numbers of 8 bytes
// (code and bits of its type, count of axes, axes), then its data.
#include <iostream>

#include "kernel_plan.hpp"

namespace {

void write(std::ofstream& file, const partc::Array& array) {
  std::vector<int64_t> head = {array.code(), static_cast<int64_t>(array.bits()), static_cast<int64_t>(array.shape.size())};
  head.insert(head.end(), array.shape.begin(), array.shape.end());
  file.write(reinterpret_cast<const char*>(head.data()), head.size() * sizeof(int64_t));
  file.write(array.data.get(), array.bytes());
}

/** The tensors of a file in memory that may be changed. */
std::vector<partc::Array> read_arguments(const std::string& path) {
  const auto named = partc::read_tensors(path);
  std::vector<partc::Array> arguments;
  for (size_t place = 0; place < named.size(); ++place) {
    const partc::Array& given = named.at(std::to_string(place));
    arguments.push_back(partc::make_array(given.dtype, given.shape));
    std::memcpy(arguments.back().data.get(), given.data.get(), given.bytes());
  }
  return arguments;
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) return 2;
  try {
    const std::vector<partc::Array> arguments = read_arguments(words[3]);
    std::vector<partc::Array> arrays = partc::Library(words[1]).call(words[2], arguments);
    arrays.insert(arrays.end(), arguments.begin(), arguments.end());
    std::ofstream file(words[4], std::ios::binary);
    for (const partc::Array& array : arrays) write(file, array);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
