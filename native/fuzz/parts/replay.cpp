/** FILE…: hands files to a fuzz target, in programs that are built without libFuzzer. */
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "fuzz.hpp"

int main(int count, char** words) {
  for (int number = 1; number < count; ++number) {
    std::ifstream file(words[number], std::ios::binary);
    const std::vector<char> content{std::istreambuf_iterator<char>(file), {}};
    // Memory of just that size, so that a sanitizer sees what is read behind it.
    const std::unique_ptr<std::uint8_t[]> data(new std::uint8_t[content.size()]);
    std::copy(content.begin(), content.end(), data.get());
    LLVMFuzzerTestOneInput(data.get(), content.size());
  }
  std::printf("%d\n", count - 1);
}
