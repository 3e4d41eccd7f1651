// Answers requests [format, bytes] with what the readers of src/format make of the bytes: [true, text] or [false, error].
#include <functional>
#include <string>

#include "errors.hpp"
#include "format/build.hpp"
#include "format/codec.hpp"
#include "format/digests.hpp"
#include "format/json.hpp"
#include "format/kernel_plan_rules.hpp"
#include "format/map.hpp"
#include "format/placement.hpp"
#include "format/program.hpp"
#include "format/safetensors.hpp"
#include "format/text.hpp"
#include "pipe.hpp"

namespace partc::tests {
namespace {

constexpr std::size_t HEADER_LIMIT = 64 * 1024;

/// Sizes of the axes of a test's expressions.
std::string evaluated(const std::string& text) {
  return std::to_string(evaluate(Size{text}, {{"batch", 3}, {"sequence", 7}}));
}

std::string printed(const std::string& text) {
  std::string lines;
  for (const program::Instruction& item : program::parse_program(text, "it")) {
    lines += program::print_instruction(item) + "\n";
  }
  return lines;
}

/// Name, type and place of every tensor.
std::string entries(const std::string& file) {
  const safetensors::Header header(file, "it");
  Object found;
  for (const std::string& name : header.names()) {
    const safetensors::Entry entry = header.entry(name).value();
    List shape;
    for (const std::uint64_t size : entry.shape) shape.push_back({Integer{size}});
    found.set(name, {List{{std::string(entry.type->name)}, {std::move(shape)}, {Integer{entry.offset}}}});
  }
  return compact_json({std::move(found)});
}

/// SHA-256 without the processor's instructions for it, in pieces.
std::string plain_digest(const std::string& bytes) {
  Sha256 hash(plain_sha256_blocks);
  const std::size_t middle = bytes.size() / 3;
  hash.update(std::string_view(bytes).substr(0, middle));
  hash.update(std::string_view(bytes).substr(middle));
  return to_hex(hash.digest());
}

/// Format → what it makes of bytes.
const Map<std::string, std::function<std::string(const std::string&)>> FORMATS{
    {"message", [](const std::string& bytes) { return encode(decode(bytes, HEADER_LIMIT)); }},
    {"json", [](const std::string& bytes) { return canonical_json(read_json(bytes, "it")); }},
    {"compact", [](const std::string& bytes) { return compact_json(read_json(bytes, "it")); }},
    {"digest", [](const std::string& bytes) { return sha256_hex(bytes); }},
    {"plain digest", plain_digest},
    {"inside", [](const std::string& bytes) { return std::string(build::is_inside(bytes) ? "yes" : "no"); }},
    {"size", evaluated},
    {"build",
     [](const std::string& bytes) { return canonical_json(build::write_build(build::parse_build(bytes, "it"))); }},
    {"placement",
     [](const std::string& bytes) { return placement::placement_text(placement::parse_placement(bytes, "it")); }},
    {"program", printed},
    {"safetensors", entries},
    {"kernels",
     [](const std::string& bytes) {
       const kernel_plan::KernelPlan plan = kernel_plan::parse_kernel_plan(bytes, "it");
       return to_hex(kernel_plan::kernels_digest(plan.kernels, plan.launches)) + " " +
              std::to_string(kernel_plan::arena_bytes(plan));
     }},
};

std::string answer(const std::string& format, const std::string& bytes) {
  MsgpackSink sink;
  sink.array(2);
  try {
    const std::string found = FORMATS.at(format)(bytes);
    sink.truth(true);
    sink.bytes({found});
  } catch (const Error& error) {
    sink.truth(false);
    sink.text(error.what());
  }
  return sink.take();
}

}  // namespace
}  // namespace partc::tests

int main() {
  using namespace partc;
  while (const auto frame = tests::read_frame()) {
    const Value request = read_msgpack(*frame);
    const List& parts = *request.as<List>();
    tests::write_frame(tests::answer(*parts[0].as<std::string>(), parts[1].as<Bytes>()->data));
  }
}
