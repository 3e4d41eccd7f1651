/** The engine over code for a GPU and the plan of its launches (docs/bundle.md, "Target tvm").

As in `partc/runtime/engines/gpu/engine.py`: weights, states and everything between inputs and outputs lie on the device.
A step copies its inputs there, starts the launches of its function, which were prepared when a slot first used it, and
copies its outputs back. States have the largest batch; an entry with fewer sequences uses the beginning of each.
*/
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "engines/contract.hpp"
#include "engines/entries.hpp"
#include "engines/gpu/library.hpp"
#include "engines/memory.hpp"
#include "engines/states.hpp"
#include "engines/weights.hpp"

namespace partc::engines::gpu {

/** Sub-modules as lists of launches. */
class GpuEngine : public Engine {
 public:
  /** Take the first GPU; nothing is loaded yet. Throws a bundle error: the machine has none. */
  GpuEngine(BuildPtr build, std::string folder);

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
  /** An input or output: where it lies in this process, and on the device. */
  struct Copied {
    Pages here;
    Buffer there;
  };
  /** A function with all its arguments, for one slot. */
  struct Call {
    std::unique_ptr<const Launches> launches;
    std::vector<Copied> outputs;
  };
  /** A function that is ready, and where its inputs go. */
  struct Prepared {
    const Call& call;
    const std::vector<Copied>& inputs;
  };
  /** Some rows of a state in a slot: where they lie on the device, and a state here that has these alone. */
  struct Window {
    Buffer buffer;
    Runs runs;
    Pages copy;
    StateView view;
  };
  using CallKey = std::tuple<std::string, std::uint64_t, Entry>;
  using InputKey = std::pair<std::string, Entry>;
  using SlotKey = std::pair<std::string, std::uint64_t>;

  const build::Submodule& loaded(const std::string& name) const;
  Prepared prepared(const build::Submodule& module, std::uint64_t slot, const Entry& entry);
  const std::vector<Copied>& inputs_of(const build::Submodule& module, const Entry& entry);
  std::vector<Tensor> step(const build::Submodule& module, const Prepared& prepared, const Sizes& sizes,
                           const std::vector<Tensor>& inputs) const;
  Window window(const build::Submodule& module, std::uint64_t slot, const std::string& state, std::uint64_t row,
                std::uint64_t begin, std::uint64_t count) const;
  template <class Act>
  auto guarded(const build::Submodule& module, Act act) const;
  Buffer allocate(std::uint64_t bytes) const;
  std::vector<Buffer> read_weights(const std::string& path, const std::vector<safetensors::Entry>& entries) const;

  BuildPtr build_;
  std::string folder_;
  std::unique_ptr<const Driver> driver_;
  Entries entries_;
  std::map<std::string, const build::Submodule*> modules_;
  std::map<std::string, std::shared_ptr<GpuLibrary>> libraries_;
  Weights<Buffer> weights_;
  std::map<SlotKey, std::vector<Buffer>> states_;   // in the order in which a sub-module declares them
  std::map<InputKey, std::vector<Copied>> inputs_;  // the same for every slot: one step runs at a time
  std::map<CallKey, Call> calls_;                   // for good: a function with all its arguments, for one slot
  mutable std::mutex changing_;  // held where these maps are looked at; their entries stay where they are
};

}  // namespace partc::engines::gpu
