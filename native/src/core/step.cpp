#include "core/step.hpp"

#include "format/text.hpp"

namespace partc::core {

using messages::Row;
using messages::TensorSpec;

Counts Step::end() const {
  Counts found;
  for (std::size_t at = 0; at < position.size(); ++at) found.push_back(position[at] + length[at]);
  return found;
}

bool Step::same_as(const Step& other) const {
  return step == other.step && slot == other.slot && dims == other.dims && position == other.position &&
         length == other.length;
}

std::vector<Row> rows_of(const Step& step, std::uint64_t max_batch) {
  const std::uint64_t first = step.slot * max_batch;
  if (step.position.empty()) return {{step.request, first, step.step, 0, 0}};
  std::vector<Row> rows;
  for (std::size_t at = 0; at < step.position.size(); ++at) {
    rows.push_back({step.request, first + at, step.step, step.position[at], step.length[at]});
  }
  return rows;
}

Step step_of(const messages::Data& data, const Role& role) {
  const std::uint64_t most = role.model().max_batch;
  const Row& first = data.rows.front();
  const std::uint64_t slot = first.row / most;
  for (std::size_t at = 0; at < data.rows.size(); ++at) {
    const Row& row = data.rows[at];
    if (row.request == first.request && row.step == first.step && row.row == slot * most + at) continue;
    throw run_error("row " + std::to_string(row.row) + " of step " + std::to_string(row.step) +
                    " does not belong to request " + std::to_string(first.request));
  }
  if (data.rows.size() > most) {
    throw run_error(std::to_string(data.rows.size()) + " sequences, at most " + std::to_string(most) +
                    " are planned for");
  }
  if (data.open.size() > 1 || (!data.open.empty() && data.open.front().request != first.request)) {
    throw run_error("a message of request " + std::to_string(first.request) + " opens another one");
  }
  Step step{first.request, slot, first.step, data.phase, data.dims, {}, {}, {}, data.likely};
  for (const Row& row : data.rows) {
    if (!role.has_step_inputs()) break;
    step.position.push_back(row.position);
    step.length.push_back(row.length);
  }
  if (!data.open.empty()) step.opening = data.open.front();
  return step;
}

namespace {

void check_rows(const Step& step, const Role& role) {
  const std::uint64_t rows = size_or(step.dims, "batch", 1), fresh = size_or(step.dims, "sequence", 1);
  const std::uint64_t positions = step.position.size(), lengths = step.length.size();
  if (positions != rows || lengths != rows || rows > role.model().max_batch) {
    throw run_error(std::to_string(rows) + " sequences with " + std::to_string(positions) + " positions and " +
                    std::to_string(lengths) + " lengths");
  }
  const std::uint64_t most = role.model().max_sequence;
  for (std::size_t at = 0; at < rows; ++at) {
    const std::uint64_t position = step.position[at], length = step.length[at];
    if (1 <= length && length <= fresh && fresh <= most && position <= most - fresh) continue;
    throw run_error(std::to_string(length) + " of " + std::to_string(fresh) + " tokens at position " +
                    std::to_string(position) + ", max_sequence is " + std::to_string(most));
  }
}

}  // namespace

void check_step(const Step& step, const Role& role) {
  const build::Model& model = role.model();
  if (step.slot >= model.max_requests) {
    throw run_error("slot " + std::to_string(step.slot) + ", there are " + std::to_string(model.max_requests));
  }
  const bool begins = step.phase != "decode" && step.phase != program::REPLAY;
  const bool is_first = step.step == 0, is_chunked = role.programs.contains(std::string(program::CHUNK));
  const bool may_begin = is_chunked || is_first;
  if (!role.programs.contains(step.phase) || (is_first && !begins) || (begins && !may_begin)) {
    throw run_error("step " + std::to_string(step.step) + " is no step of " + in_quotes(step.phase));
  }
  if (!step.likely.empty() && step.likely.size() != size_or(step.dims, "batch", 1)) {
    throw run_error("probabilities of " + std::to_string(step.likely.size()) + " tokens");
  }
  if (is_first != step.opening.has_value()) throw run_error("a request is opened by its step 0, and by no other");
  for (const auto& [name, size] : step.dims) {
    const std::uint64_t* most = role.dims().find(name);
    if (most != nullptr && size <= *most) continue;
    throw run_error(name + " is " + std::to_string(size) + ", at most " + std::to_string(most ? *most : 0) +
                    " is planned for");
  }
  if (role.has_step_inputs()) check_rows(step, role);
}

std::vector<TensorSpec> announced(const Tensors& values, const Types& types) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : values) specs.push_back({name, types.at(name).dtype, tensor.shape});
  return specs;
}

void check_specs(const std::vector<TensorSpec>& specs, const Types& types, const Dims& dims) {
  for (const TensorSpec& spec : specs) {
    const build::TensorType* declared = types.find(spec.name);
    if (declared == nullptr) throw run_error(in_quotes(spec.name) + " does not belong here");
    if (spec.dtype != declared->dtype) {
      throw run_error(in_quotes(spec.name) + " is " + spec.dtype + ", the plan says " + declared->dtype);
    }
    const Shape expected = evaluate_shape(declared->shape, dims);
    if (spec.shape == expected) continue;
    throw run_error(in_quotes(spec.name) + " has the shape " + list_text(spec.shape) + ", the plan says " +
                    list_text(expected));
  }
}

void check_sizes(const std::vector<TensorSpec>& specs, const Frames& frames) {
  if (specs.size() != frames.size()) {
    throw run_error(std::to_string(specs.size()) + " tensors are announced, " + std::to_string(frames.size()) + " came");
  }
  for (std::size_t at = 0; at < specs.size(); ++at) {
    const TensorSpec& spec = specs[at];
    if (frames[at].size == bytes_of(spec.shape, element_type(spec.dtype)->bytes)) continue;
    throw run_error(in_quotes(spec.name) + " has " + std::to_string(frames[at].size) + " bytes, not those of " +
                    spec.dtype + list_text(spec.shape));
  }
}

std::string list_text(const Counts& numbers) {
  Names texts;
  for (const std::uint64_t number : numbers) texts.push_back(std::to_string(number));
  return "[" + joined(texts, ", ") + "]";
}

std::uint64_t size_or(const Dims& dims, const std::string& symbol, std::uint64_t usual) {
  const std::uint64_t* found = dims.find(symbol);
  return found == nullptr ? usual : *found;
}

}  // namespace partc::core
