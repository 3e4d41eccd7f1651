// Headers of safetensors files: every tensor that is told of lies inside of the file.
#include "format/safetensors.hpp"

#include <optional>

#include "fuzz.hpp"

using namespace partc;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::accepted([&] {
    const safetensors::Header header(fuzz::text_of(data, size), "it");
    for (const std::string& name : header.names()) {
      const safetensors::Entry entry = header.entry(name).value();
      fuzz::require(bytes_of(entry.shape, entry.type->bytes) == entry.bytes);
      fuzz::require(entry.offset <= size && entry.bytes <= size - entry.offset);
    }
  });
  return 0;
}
