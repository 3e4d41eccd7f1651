// call_function LIBRARY FUNCTION ARGUMENTS RESULTS: call one function with the tensors "0", "1", ... of a safetensors
// file; write its outputs and then all arguments, whose states it changed. A tensor is written as numbers of 8 bytes
// (code and bits of its type, count of axes, axes), then its data.
#include <fstream>
#include <iostream>

#include "tvm_library.hpp"

namespace {

void write(std::ofstream& file, const DLTensor& tensor) {
  std::vector<int64_t> head = {tensor.dtype.code, tensor.dtype.bits, tensor.ndim};
  head.insert(head.end(), tensor.shape, tensor.shape + tensor.ndim);
  file.write(reinterpret_cast<const char*>(head.data()), head.size() * sizeof(int64_t));
  file.write(static_cast<const char*>(tensor.data), tvm::ffi::GetDataSize(tensor));
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) return 2;
  try {
    const partc::Tensors named = partc::read_tensors(words[3]);
    std::vector<tvm::ffi::Tensor> arguments;
    for (size_t place = 0; place < named.size(); ++place) arguments.push_back(named.at(std::to_string(place)));
    std::vector<tvm::ffi::Tensor> tensors = partc::call(partc::load_library(words[1]), words[2], arguments);
    tensors.insert(tensors.end(), arguments.begin(), arguments.end());
    std::ofstream file(words[4], std::ios::binary);
    for (const tvm::ffi::Tensor& tensor : tensors) write(file, *tensor.GetDLTensorPtr());
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
