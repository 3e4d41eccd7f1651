// Written by `python -m partc.format.native native/src/format`: change the Python structs, not this file.

#pragma once

#include "format/plain.hpp"

namespace partc::build {

/// Limits of one device; a ring moves its sub-modules elsewhere where it reaches one. Null: no limit.
struct Limits {
  std::optional<double> battery{};
  std::optional<double> temperature_c{};
  std::optional<std::uint64_t> memory_bytes{};
  bool operator==(const Limits&) const = default;
};

/// Element type and symbolic shape of a value.
struct TensorType {
  std::string dtype{};
  std::vector<Size> shape{};
  bool operator==(const TensorType&) const = default;
};

/// An input or an output of the whole model.
struct Port {
  std::string name{};
  std::string dtype{};
  std::vector<Size> shape{};
  bool operator==(const Port&) const = default;
};

/// A state that a sub-module keeps between steps; one buffer is both its input and its output.
struct State {
  std::string name{};
  std::string input{};
  std::string output{};
  std::string dtype{};
  std::vector<Size> shape{};
  std::string kind = "rows";
  std::string layout = "plain";
  bool operator==(const State&) const = default;
};

/// One file that the engine can compute: consecutive sub-modules of the plan that no placement of the build cuts.
struct Submodule {
  std::string name{};
  std::string file{};
  std::vector<std::string> weights{};
  std::vector<std::string> inputs{};
  std::vector<std::string> outputs{};
  std::vector<State> states{};
  std::optional<std::pair<std::uint64_t, std::uint64_t>> covers{};
  bool operator==(const Submodule&) const = default;
};

/// Facts of the whole model.
struct Model {
  std::string name{};
  std::string task{};
  std::string dtype{};
  std::uint64_t max_sequence{};
  std::uint64_t max_batch{};
  std::uint64_t max_requests{};
  std::optional<std::uint64_t> vocab_size{};
  std::vector<std::int64_t> eos_token_ids{};
  std::optional<std::int64_t> pad_token_id{};
  std::optional<std::int64_t> bos_token_id{};
  std::optional<std::vector<std::string>> labels{};
  std::vector<std::int64_t> start_tokens{};
  std::optional<std::int64_t> placeholder_token{};
  std::uint64_t placeholders = 0;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> picture_size{};
  bool uniform_positions = false;
  std::optional<std::uint64_t> prompt_chunk{};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> prompt_steps{};
  bool prefix_reuse = false;
  bool drafts = false;
  std::uint64_t step_requests = 1;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> step_tokens{};
  bool operator==(const Model&) const = default;
};

/// The functions of one sub-module in a compiled library.
struct LibraryFunctions {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> entries{};
  std::vector<std::string> weights{};
  bool operator==(const LibraryFunctions&) const = default;
};

/// Facts about the compiled libraries of a device.
struct LibraryOptions {
  std::string platform{};
  std::vector<std::string> needs{};
  Map<std::string, LibraryFunctions> functions{};
  bool operator==(const LibraryOptions&) const = default;
};

/// The engine that computes the sub-modules, and its options.
struct EngineSpec {
  std::string kind{};
  std::string provider = "cpu";
  std::uint64_t threads = 0;
  Map<std::string, Value> options{};
  std::optional<LibraryOptions> library{};
  std::optional<bool> chunked_prefill{};
  bool operator==(const EngineSpec&) const = default;
};

/// Bytes that the plan reckons with.
struct Memory {
  std::optional<std::uint64_t> budget_bytes{};
  std::uint64_t weights_bytes{};
  std::uint64_t state_bytes{};
  std::optional<std::uint64_t> peak_bytes{};
  std::uint64_t mirror_bytes = 0;
  bool operator==(const Memory&) const = default;
};

/// A sub-module of the plan that two devices have memory for.
struct Shared {
  std::uint64_t submodule{};
  std::vector<std::string> devices{};
  bool operator==(const Shared&) const = default;
};

/// Sub-modules of the plan that this device and a neighbour both have memory for.
struct Overlap {
  std::vector<std::uint64_t> movable{};
  std::vector<std::uint64_t> unmovable{};
  std::vector<Shared> shared{};
  bool operator==(const Overlap&) const = default;
};

/// Digest and size of one file.
struct FileEntry {
  std::string sha256{};
  std::uint64_t bytes{};
  bool operator==(const FileEntry&) const = default;
};

/// build.json of one device.
struct Build {
  std::string format = "partc-build/2";
  std::string plan_id{};
  std::string device{};
  std::string target{};
  Model model{};
  std::vector<Port> inputs{};
  std::vector<Port> outputs{};
  Map<std::string, std::uint64_t> dims{};
  Map<std::string, TensorType> values{};
  std::vector<Submodule> submodules{};
  EngineSpec engine{};
  Memory memory{};
  std::optional<Overlap> overlap{};
  std::optional<Limits> limits{};
  std::vector<std::string> survives{};
  Map<std::string, std::string> toolkit{};
  bool verified_on_hardware = false;
  Map<std::string, FileEntry> files{};
  std::string digest{};
  bool operator==(const Build&) const = default;
};

/// Throws Error: the data are no Build.
Build read_build(const Value& value);
Value write_build(const Build& item);

}  // namespace partc::build
