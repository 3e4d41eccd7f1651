/** The contract of engines: `partc/runtime/engines/contract.py` says what each method promises. */
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "format/build.hpp"
#include "format/tensor.hpp"

namespace partc::engines {

using Slots = std::vector<std::uint64_t>;

/** Computes the sub-modules of one device; it begins with none of them loaded. */
class Engine {
 public:
  virtual ~Engine() = default;
  virtual void load(const std::string& submodule) = 0;
  virtual void release(const std::string& submodule) = 0;
  /** Beside steps, by the thread that loads: whether there may be more to do. */
  virtual bool settle() { return false; }
  virtual void reset(std::uint64_t slot, const Dims& dims) = 0;
  virtual std::vector<Tensor> run(const std::string& submodule, std::uint64_t slot, const std::vector<Tensor>& inputs,
                                  const Dims& dims) = 0;
  /** A step of several rows, one in each of these slots, as if one row came after the other: a slot may come again. */
  virtual std::vector<Tensor> run_shared(const std::string& submodule, const Slots& slots,
                                         const std::vector<Tensor>& inputs, const Dims& dims) = 0;
  virtual Tensor read_rows(const std::string& submodule, std::uint64_t slot, const std::string& state,
                           std::uint64_t row, std::uint64_t begin, std::uint64_t end) = 0;
  virtual void write_rows(const std::string& submodule, std::uint64_t slot, const std::string& state, std::uint64_t row,
                          std::uint64_t begin, const Tensor& rows) = 0;
};

/** A build that engines share with whoever asked for them. */
using BuildPtr = std::shared_ptr<const build::Build>;

/** The engine that the build asks for, with nothing loaded.

Throws a bundle error: this runner has none of that kind.
*/
std::unique_ptr<Engine> make_engine(const BuildPtr& build, const std::string& folder);

/** A sub-module of the build; throws a bundle error where it has none of that name. */
const build::Submodule& submodule_named(const std::string& name, const build::Build& build);

/** The error for a sub-module that is not loaded. */
Error not_loaded(const std::string& name);

/** Holds the inputs of a step against their sizes; throws a run error. */
void check_input(const std::string& name, const Tensor& array, const ElementType& type, const Shape& shape);

}  // namespace partc::engines
