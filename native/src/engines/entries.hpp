/** Functions of compiled libraries by size of step: the one that a step runs in, and what fills it up.

A library has one function for every entry: a pair of batch and sequence, or of batch and source in a sub-module that a
request runs once. A step runs in the smallest entry that it fits into, its inputs padded with zeros and its outputs cut
to size.
*/
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "format/build.hpp"
#include "format/tensor.hpp"

namespace partc::engines {

/** Batch and `row_symbol` that a function is for. */
using Entry = std::pair<std::uint64_t, std::uint64_t>;
/** The types of all values that sub-modules read and make. */
using Types = std::map<std::string, build::TensorType>;

/** The types of the values of a build: those of steps, its inputs and outputs, and what its programs name. */
Types types_of(const build::Build& build);

/** The beginning of every axis of a tensor that has the sizes of an entry.

Axes of `batch*sequence` are two here, since a row of padding stands behind every sequence.
*/
struct Span {
  const ElementType* type;
  Shape whole;  // sizes of the entry
  Shape sizes;  // sizes of the step
  Shape shape;  // the same, with products multiplied

  /** Copy the `array` of a step to the beginning of every axis of `buffer`; the rest is zeros. */
  void fill(std::byte* buffer, const Tensor& array) const;
  /** The step's part of `buffer`, without gaps. */
  Tensor cut(const std::byte* buffer) const;
};

/** The entry of a step, and what it asks for of each input and output. */
struct Sizes {
  Entry entry;
  std::vector<Span> inputs, outputs;
};

/** The entries of all sub-modules of a device. */
class Entries {
 public:
  /** Reads nothing but the build, which must stay. Throws a bundle error: an entry is larger than states are. */
  explicit Entries(const build::Build& build);

  /** The entry for a step, kept for the sizes of late. Throws a run error: no entry is large enough. */
  const Sizes& of(const build::Submodule& module, const Dims& dims);
  /** The sizes of a step in an entry that the caller names. */
  const Sizes& exactly(const build::Submodule& module, const Entry& entry, const Dims& dims);
  /** The value of every symbol in the function of an entry. */
  Dims sizes(const build::Submodule& module, const Entry& entry) const;
  const Types& types() const { return types_; }

 private:
  using Key = std::pair<std::string, std::vector<std::pair<std::string, std::uint64_t>>>;
  /** A sub-module, the entry, and the sizes of the step. */
  using ExactKey = std::tuple<std::string, Entry, std::vector<std::pair<std::string, std::uint64_t>>>;

  Sizes make(const build::Submodule& module, const Entry& entry, const Dims& dims) const;
  Entry entry_for(const build::Submodule& module, const Dims& dims) const;
  Span span(const std::string& value, const Dims& entry, const Dims& step) const;

  const build::Build& build_;
  Types types_;
  std::map<Key, Sizes> kept_;
  std::map<ExactKey, Sizes> exact_;
};

/** The name of a function: `part_0_b2_s64`. */
std::string function_name(const std::string& submodule, const Entry& entry);

}  // namespace partc::engines
