// Programs: their text is read as it is printed, and the rules of a ring come to an end.
#include "format/program.hpp"

#include "format/program_rules.hpp"
#include "fuzz.hpp"

using namespace partc;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = fuzz::text_of(data, size);
  const std::size_t end = std::min(input.find('\0'), size);  // the program of `a`, and then that of `b`
  program::Programs ring;
  const bool is_read = fuzz::accepted([&] {
    ring.set("a", program::parse_program(input.substr(0, end), "it"));
    ring.set("b", program::parse_program(input.substr(std::min(end + 1, size)), "it"));
  });
  if (!is_read) return 0;
  const Map<std::string, build::TensorType> types{{"input_ids", {"float32", {}}}, {"h", {"float32", {}}}};
  const Dims dims;
  for (const auto& [device, items] : ring) {
    std::string printed;
    for (const program::Instruction& item : items) printed += program::print_instruction(item) + "\n";
    fuzz::require(program::parse_program(printed, "it") == items);
    program::device_fault(program::tokenless(items), {"input_ids"}, {}, {types, dims});
  }
  program::ring_fault(ring, "a");
  return 0;
}
