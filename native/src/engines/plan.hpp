/** The engine over a compiled library and the plan of its kernels (docs/bundle.md, "Target tvm").

Everything about the addresses of a function and a slot is put together when a step first needs it (`plan_frame.hpp`). A
step then copies its inputs, makes one call, and copies its outputs. States have the largest batch; an entry with fewer
sequences uses the beginning of each.
*/
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "engines/contract.hpp"
#include "engines/entries.hpp"
#include "engines/mapped_weights.hpp"
#include "engines/plan_frame.hpp"
#include "engines/plan_library.hpp"
#include "engines/states.hpp"
#include "engines/weights.hpp"

namespace partc::engines {

/** Sub-modules as lists of kernels. */
class PlanEngine : public Engine {
 public:
  PlanEngine(BuildPtr build, std::string folder);

  void load(const std::string& submodule) override;
  void release(const std::string& submodule) override;
  bool settle() override { return mappings_.settle(); }
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
  using CallKey = std::tuple<std::string, std::uint64_t, Entry>;
  /** A function with all its arguments, and where its inputs go. */
  struct Prepared {
    Frame& frame;
    const std::vector<Pages>& inputs;
  };
  using InputKey = std::pair<std::string, Entry>;
  using SlotKey = std::pair<std::string, std::uint64_t>;

  const build::Submodule& loaded(const std::string& name) const;
  Prepared prepared(const build::Submodule& module, std::uint64_t slot, const Entry& entry);
  const std::vector<Pages>& inputs_of(const build::Submodule& module, const Entry& entry);
  std::vector<std::byte*> parameters_of(const build::Submodule& module, const std::vector<Pages>& inputs,
                                        const std::vector<std::byte*>& states) const;
  const std::vector<std::byte*>& places(const build::Submodule& module, std::uint64_t slot);
  void prepare_shared(const build::Submodule& module);
  std::vector<std::uint64_t> groups(const std::string& submodule, std::uint64_t count) const;
  std::vector<Tensor> run_together(const build::Submodule& module, const Slots& slots,
                                   const std::vector<Tensor>& inputs, const Dims& dims);
  std::vector<Tensor> step(const build::Submodule& module, const Frame& frame, const std::vector<Pages>& buffers,
                           const Sizes& sizes, const std::vector<Tensor>& inputs) const;

  BuildPtr build_;
  std::string folder_;
  Entries entries_;
  std::map<std::string, const build::Submodule*> modules_;
  std::map<std::string, std::shared_ptr<Library>> libraries_;
  WeightMappings mappings_;
  Weights<std::shared_ptr<std::byte>> weights_;
  States states_;
  std::map<InputKey, std::vector<Pages>> inputs_;      // the same for every slot: one step runs at a time
  std::map<CallKey, Frame> calls_;                     // for good: a function with all its arguments, for one slot
  std::map<InputKey, Frame> shared_;                   // steps of several requests, which are pointed to their states
  std::map<SlotKey, std::vector<std::byte*>> places_;  // where states lie, in the order of parameters
  mutable std::mutex changing_;  // held where these maps are looked at; their entries stay where they are
};

}  // namespace partc::engines
