/** ort_steps FOLDER STEPS: what a step of engine `ort` takes, and how much of it is onnxruntime's; for
`tests/bench/ort_steps.py`.

Steps of one token of one sequence, and calls of onnxruntime alone with everything bound, in turns. A line for each
turn: the time of a step and that of a call, in nanoseconds.
*/
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engines/memory.hpp"
#include "engines/new_tensor.hpp"
#include "engines/ort.hpp"
#include "errors.hpp"
#include "format/local_file.hpp"

using namespace partc;
using namespace partc::engines;

namespace {

/** Zeros, and for numbers of tokens ones. */
Tensor input_of(const std::string& name, const build::TensorType& type, const Dims& dims) {
  NewTensor made(*element_type(type.dtype), evaluate_shape(type.shape, dims));
  std::memset(made.data(), 0, made.bytes());
  const std::int64_t one = 1;
  if (name == "length") std::memcpy(made.data(), &one, sizeof one);
  return made.take();
}

/** A session whose inputs, outputs and states are bound for good. */
class Bound {
 public:
  Bound(const build::Build& build, const std::string& folder, const Dims& dims) {
    const build::Submodule& module = build.submodules.front();
    session_ = load_session(build.engine, folder, module);
    binding_ = ort::made<ort::IoBindingPtr>(ort::create_io_binding, session_.inner.get());
    const Types types = types_of(build);
    for (const std::string& name : module.inputs) {
      const Tensor given = input_of(name, types.at(name), dims);
      ort::bind_input(binding_.get(), name.c_str(), value(*given.type, given.shape, given.bytes.text()).get());
    }
    for (const std::string& name : module.outputs)
      ort::bind_output(binding_.get(), name.c_str(), zeros(types.at(name), dims).get());
    for (const build::State& state : module.states) {
      const ort::ValuePtr zero = zeros(build::buffer_of(state), dims);
      ort::bind_input(binding_.get(), state.input.c_str(), zero.get());
      ort::bind_output(binding_.get(), state.output.c_str(), zero.get());
    }
  }
  void run() { ort::run_with_binding(session_.inner.get(), nullptr, binding_.get()); }

 private:
  ort::ValuePtr zeros(const build::TensorType& type, const Dims& dims) {
    return value(*element_type(type.dtype), evaluate_shape(type.shape, dims), "");
  }
  ort::ValuePtr value(const ElementType& type, const Shape& shape, std::string_view content) {
    const Pages& pages = memory_.emplace_back(bytes_of(shape, type.bytes));
    std::memcpy(pages.data(), content.data(), content.size());
    const std::vector<std::int64_t> sizes(shape.begin(), shape.end());
    return ort::made<ort::ValuePtr>(ort::create_tensor_with_data, place_.get(), pages.data(), pages.bytes(),
                                    sizes.data(), sizes.size(), type.onnx);
  }

  ort::MemoryInfoPtr place_ = ort::made<ort::MemoryInfoPtr>(ort::create_memory_info, "Cpu", 0, 0, 0);
  std::vector<Pages> memory_;
  Session session_;
  ort::IoBindingPtr binding_;
};

template <class Work>
double nanoseconds(Work work) {
  const auto begun = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begun).count();
}

}  // namespace

int main(int count, char** words) try {
  if (count != 3) return 2;
  const std::string folder = words[1], path = folder + "/build.json";
  const auto build = std::make_shared<build::Build>(build::parse_build(LocalFile(path).whole(), path));
  const build::Submodule& module = build->submodules.front();
  Dims dims = build->dims;
  dims.set("batch", 1);
  dims.set("sequence", 1);
  OrtEngine engine(build, folder);
  engine.load(module.name);
  engine.reset(0, dims);
  Bound bound(*build, folder, dims);
  std::vector<Tensor> inputs;
  for (const std::string& name : module.inputs) inputs.push_back(input_of(name, types_of(*build).at(name), dims));
  for (int i = std::atoi(words[2]); i > 0; --i) {
    const double step = nanoseconds([&] { engine.run(module.name, 0, inputs, dims); });
    const double call = nanoseconds([&] { bound.run(); });
    std::printf("%.0f %.0f\n", step, call);
  }
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();
}
