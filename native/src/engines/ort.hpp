/** The engine over onnxruntime, whose library is loaded when the first one is made.

As in `partc/runtime/engines/ort.py`: a state is bound once per request, the same memory as input and as output. Small
inputs are copied to memory that stays bound from step to step, and a small output lies where the last one did, once
nobody has that any more; large ones are bound where they lie.
*/
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engines/contract.hpp"
#include "engines/entries.hpp"
#include "engines/ort_api.hpp"
#include "engines/ort_session.hpp"
#include "engines/states.hpp"

namespace partc::engines {

/** Sub-modules as ONNX files. */
class OrtEngine : public Engine {
 public:
  /** Throws a bundle error: onnxruntime is not installed, or the provider is none of this runner's. */
  OrtEngine(BuildPtr build, std::string folder);

  void load(const std::string& submodule) override;
  void release(const std::string& submodule) override;
  void reset(std::uint64_t slot, const Dims& dims) override;
  std::vector<Tensor> run(const std::string& submodule, std::uint64_t slot, const std::vector<Tensor>& inputs,
                          const Dims& dims) override;
  std::vector<Tensor> run_shared(const std::string& submodule, const Slots& slots, const std::vector<Tensor>& inputs,
                                 const Dims& dims) override;
  Tensor read_rows(const std::string& submodule, std::uint64_t slot, const std::string& state, std::uint64_t row,
                   std::uint64_t begin, std::uint64_t end) override;
  void write_rows(const std::string& submodule, std::uint64_t slot, const std::string& state, std::uint64_t row,
                  std::uint64_t begin, const Tensor& rows) override;

 private:
  /** An input where it is bound: a small one in memory that stays, a large one as it came. */
  struct Input {
    const ElementType* type = nullptr;
    Shape shape;
    std::vector<std::byte> copy;
    Tensor large;
  };
  /** Memory of a small output, and whether somebody has it. */
  struct Block {
    explicit Block(std::uint64_t bytes) : memory(new std::byte[bytes ? bytes : 1]) {}
    std::unique_ptr<std::byte[]> memory;
    std::atomic<bool> is_lent = false;
  };
  struct Output {
    Shape shape;
    std::shared_ptr<Block> block;
  };
  /** The bindings of one slot. */
  struct Slot {
    ort::IoBindingPtr binding;
    std::vector<Input> inputs;
    std::vector<Output> outputs;
    bool has_states = false;    // they are bound as the request has them
    Dims dims;                  // of the last step
    std::vector<Shape> shapes;  // of the outputs under `dims`
  };
  struct Loaded {
    const build::Submodule* module;
    Session session;
    std::vector<Slot> slots;
  };

  Loaded* find(const std::string& submodule);
  void bind_states(const build::Submodule& module, std::uint64_t slot, Slot& bound) const;
  void put_input(Slot& bound, const std::string& name, Input& mine, const Tensor& array) const;
  Tensor take_output(Slot& bound, const std::string& name, Output& mine, const Shape& shape) const;

  BuildPtr build_;
  std::string folder_;
  Types types_;
  States states_;
  std::map<std::string, Loaded> loaded_;
  std::mutex changing_;  // held where the map is looked at; its entries stay where they are
};

}  // namespace partc::engines
