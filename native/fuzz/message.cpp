// Headers of messages: what is read is written, read and written again the same.
#include "format/codec.hpp"
#include "format/facts.gen.hpp"
#include "fuzz.hpp"

using namespace partc;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  messages::AnyMessage message;
  if (!fuzz::accepted([&] { message = decode(fuzz::text_of(data, size), FRAME_LIMIT); })) return 0;
  const std::string written = encode(message);
  fuzz::require(encode(decode(written, FRAME_LIMIT)) == written);
  return 0;
}
