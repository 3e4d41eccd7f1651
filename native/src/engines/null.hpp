/** The engine that computes nothing of use and needs nothing, for tests of everything around it. */
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engines/contract.hpp"
#include "engines/entries.hpp"
#include "engines/states.hpp"

namespace partc::engines {

/** Outputs that depend on every bit of the inputs and of the rows that a step may see, and mean nothing. */
class NullEngine : public Engine {
 public:
  explicit NullEngine(BuildPtr build);

  void load(const std::string& submodule) override;
  void release(const std::string& submodule) override;
  void reset(std::uint64_t slot, const Dims& dims) override { states_.reset(slot, dims); }
  std::vector<Tensor> run(const std::string& submodule, std::uint64_t slot, const std::vector<Tensor>& inputs,
                          const Dims& dims) override;
  std::vector<Tensor> run_shared(const std::string& submodule, const Slots& slots, const std::vector<Tensor>& inputs,
                                 const Dims& dims) override;
  Tensor read_rows(const std::string& submodule, std::uint64_t slot, const std::string& state, std::uint64_t row,
                   std::uint64_t begin, std::uint64_t end) override {
    return states_.read(submodule, slot, state, row, begin, end);
  }
  void write_rows(const std::string& submodule, std::uint64_t slot, const std::string& state, std::uint64_t row,
                  std::uint64_t begin, const Tensor& rows) override {
    states_.write(submodule, slot, state, row, begin, rows);
  }

 private:
  const build::Submodule* find(const std::string& submodule);
  Tensor filled(const std::string& name, std::uint64_t mark, const Dims& dims) const;

  BuildPtr build_;
  Types types_;
  std::map<std::string, const build::Submodule*> loaded_;
  States states_;
  std::mutex changing_;  // held where the set of loaded sub-modules is looked at
};

}  // namespace partc::engines
