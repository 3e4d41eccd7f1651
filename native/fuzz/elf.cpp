// The loader of compiled libraries: it reads and writes nothing but the file and its own mapping. Nothing is executed.
#include <cstring>
#include <span>

#include "engines/elf_loader.hpp"
#include "fuzz.hpp"

using namespace partc;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::accepted([&] {
    const engines::Code code(std::as_bytes(std::span(data, size)), "it");
    for (const char* name : {"partc_run", "partc_work", "partc_wake", "__tvm_ffi_add"}) code.find(name);
    const void* digest = code.find("partc_kernels", 32);
    char read[32];
    if (digest != nullptr) std::memcpy(read, digest, sizeof read);
  });
  return 0;
}
