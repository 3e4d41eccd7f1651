/** engine FOLDER: the engine of a device's folder, driven by lines of JSON; what tests/native/test_engines.py asks it.

| line | answer |
| --- | --- |
| `{"load": NAME}`, `{"release": NAME}`, `{"reset": SLOT, "dims": {…}}` | `{}` |
| `{"settle": true}` | `{"more": …}` |
| `{"run": NAME, "slot": SLOT, "dims": {…}, "inputs": [ARRAY, …]}` | `{"outputs": [ARRAY, …]}` |
| `{"run": NAME, "slots": [SLOT, …], "dims": {…}, "inputs": [ARRAY, …]}` | the same, of a step that requests share |
| `{"kept": true}` | `{"outputs": [ARRAY, …]}`: those of the runs until now that asked for `"keep": true`, again |
| `{"read": NAME, "slot": SLOT, "state": NAME, "row": N, "begin": N, "end": N}` | `{"rows": ARRAY}` |
| `{"write": NAME, "slot": SLOT, "state": NAME, "row": N, "begin": N, "rows": ARRAY}` | `{}` |

ARRAY is `[type, shape, hexadecimal digits]`. Where the engine refuses, the answer is `{"error": TEXT}`.
*/
#include <cstdio>
#include <iostream>
#include <string>

#include "engines/contract.hpp"
#include "errors.hpp"
#include "format/json.hpp"
#include "format/local_file.hpp"
#include "format/text.hpp"

using namespace partc;

namespace {

const Value& item(const Object& object, const char* key) { return object.at(key); }
const std::string& text(const Object& object, const char* key) { return *item(object, key).as<std::string>(); }
std::uint64_t number(const Value& value) { return static_cast<std::uint64_t>(*value.as<Integer>()); }
std::uint64_t number(const Object& object, const char* key) { return number(item(object, key)); }

Dims dims_of(const Object& object) {
  Dims dims;
  for (const auto& [name, size] : *item(object, "dims").as<Object>()) dims.set(name, number(size));
  return dims;
}

Tensor array_from(const Value& value) {
  const List& parts = *value.as<List>();
  Shape shape;
  for (const Value& size : *parts.at(1).as<List>()) shape.push_back(number(size));
  return to_tensor(Frame::copy(from_hex(*parts.at(2).as<std::string>())), *parts.at(0).as<std::string>(), shape);
}

Value value_of(const Tensor& array) {
  List shape;
  for (const std::uint64_t size : array.shape) shape.push_back({Integer{size}});
  return {List{{std::string(array.type->name)}, {shape}, {to_hex(array.bytes.text())}}};
}

std::vector<Tensor> run(engines::Engine& engine, const Object& asked, const std::vector<Tensor>& inputs) {
  const std::string& name = text(asked, "run");
  if (!asked.contains("slots")) return engine.run(name, number(asked, "slot"), inputs, dims_of(asked));
  engines::Slots slots;
  for (const Value& slot : *item(asked, "slots").as<List>()) slots.push_back(number(slot));
  return engine.run_shared(name, slots, inputs, dims_of(asked));
}

Object answer(engines::Engine& engine, const Object& asked) {
  static std::vector<Tensor> kept;
  Object found;
  if (asked.contains("load")) engine.load(text(asked, "load"));
  if (asked.contains("settle")) found.set("more", {engine.settle()});
  if (asked.contains("release")) engine.release(text(asked, "release"));
  if (asked.contains("reset")) engine.reset(number(asked, "reset"), dims_of(asked));
  if (asked.contains("run")) {
    std::vector<Tensor> inputs;
    for (const Value& input : *item(asked, "inputs").as<List>()) inputs.push_back(array_from(input));
    List outputs;
    for (const Tensor& output : run(engine, asked, inputs)) {
      outputs.push_back(value_of(output));
      if (asked.contains("keep")) kept.push_back(output);
    }
    found.set("outputs", {outputs});
  }
  if (asked.contains("kept")) {
    List outputs;
    for (const Tensor& output : kept) outputs.push_back(value_of(output));
    found.set("outputs", {outputs});
  }
  if (asked.contains("read")) {
    found.set("rows", value_of(engine.read_rows(text(asked, "read"), number(asked, "slot"), text(asked, "state"),
                                                number(asked, "row"), number(asked, "begin"), number(asked, "end"))));
  }
  if (asked.contains("write")) {
    engine.write_rows(text(asked, "write"), number(asked, "slot"), text(asked, "state"), number(asked, "row"),
                      number(asked, "begin"), array_from(item(asked, "rows")));
  }
  return found;
}

}  // namespace

int main(int count, char** words) try {
  if (count != 2) return 2;
  const std::string folder = words[1], path = folder + "/build.json";
  const auto build = std::make_shared<build::Build>(build::parse_build(LocalFile(path).whole(), path));
  const auto engine = engines::make_engine(build, folder);
  for (std::string line; std::getline(std::cin, line);) {
    Object found;
    try {
      found = answer(*engine, read_json_object(line, "a line"));
    } catch (const Error& error) {
      found.set("error", {std::string(error.what())});
    }
    std::printf("%s\n", compact_json({found}).c_str());
    std::fflush(stdout);
  }
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();
}
