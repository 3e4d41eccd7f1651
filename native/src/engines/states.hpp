/** States of sub-modules: their memory by slot, and the form in which their rows travel.

The table of forms stands in `partc/runtime/engines/states.py`. A slot holds one request; outside an engine, rows of one
sequence are `[positions, heads, d]`, whatever the layout inside.
*/
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engines/memory.hpp"
#include "format/build.hpp"
#include "format/tensor.hpp"

namespace partc::engines {

/** A state in a slot: where it lies, and its sizes in the engine's layout. */
struct StateView {
  const build::State* declared = nullptr;
  std::byte* data = nullptr;
  Shape sizes;
  std::uint64_t element_bytes = 0;
};

/** Positions, heads and d of one sequence of a state with these sizes, whatever its layout inside. */
Shape row_sizes(const build::State& state, const Shape& sizes);

/** A copy of positions begin to end (exclusive) of one sequence, `[end - begin, heads, d]`.

Throws a run error: there is no such sequence or position.
*/
Tensor rows_of(const StateView& view, std::uint64_t row, std::uint64_t begin, std::uint64_t end);
/** Copy rows to the positions from `begin` on. Throws a run error: as above, or they do not fit. */
void put_rows(const StateView& view, std::uint64_t row, std::uint64_t begin, const Tensor& rows);

/** Where some positions of a sequence lie in a state of the plain layout: side by side for each head. */
struct Runs {
  std::vector<std::uint64_t> offsets;  // of each head, in bytes
  std::uint64_t bytes;                 // of each
  Shape sizes;                         // of a state that has these alone
};
/** Throws a run error: there is no such sequence or position. */
Runs runs_of(const StateView& view, std::uint64_t row, std::uint64_t begin, std::uint64_t count);

/** The states of loaded sub-modules in all slots, each with room for its largest size.

Memory is used where a request has written. Sub-modules come and go in one thread while another one begins requests.
*/
class States {
 public:
  /** `largest` binds every symbol to its largest value; `slots` is the number of requests in flight. */
  States(Dims largest, std::uint64_t slots);

  /** Make room for a sub-module, which must stay where it is; in slots that are in use its states are zero. */
  void add(const build::Submodule& submodule);
  void remove(const std::string& submodule);
  /** Zero the states of a slot and give them the sizes of a request. */
  void reset(std::uint64_t slot, const Dims& dims);
  /** In the order in which the sub-module declares them. */
  std::vector<StateView> of(const std::string& submodule, std::uint64_t slot) const;

  /** See `rows_of`; throws a run error: as there, or there is no such state. */
  Tensor read(const std::string& submodule, std::uint64_t slot, const std::string& state, std::uint64_t row,
              std::uint64_t begin, std::uint64_t end) const;
  /** See `put_rows`; throws as above. */
  void write(const std::string& submodule, std::uint64_t slot, const std::string& state, std::uint64_t row,
             std::uint64_t begin, const Tensor& rows);

 private:
  /** A sub-module in one slot. */
  struct Room {
    Pages pages;
    std::vector<StateView> views;
  };
  using Key = std::pair<std::string, std::uint64_t>;

  void place(Room& room, const build::Submodule& submodule, const Dims& dims) const;
  const StateView& find(const std::string& submodule, std::uint64_t slot, const std::string& state) const;

  Dims largest_;
  std::vector<Dims> dims_;  // of each slot
  std::map<std::string, const build::Submodule*> declared_;
  std::map<Key, Room> rooms_;
  mutable std::mutex changing_;  // held where the set of sub-modules and the sizes of requests must fit each other
};

}  // namespace partc::engines
