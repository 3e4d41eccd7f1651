#include "core/step.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "format/text.hpp"

namespace partc::core {

using messages::Row;
using messages::TensorSpec;

std::vector<StepMember> Step::members() const {
  std::vector<StepMember> found{{request, slot, step, branch}};
  found.insert(found.end(), others.begin(), others.end());
  return found;
}

Counts Step::end() const {
  Counts found;
  for (std::size_t at = 0; at < position.size(); ++at) found.push_back(position[at] + length[at]);
  return found;
}

bool Step::same_as(const Step& other) const {
  return step == other.step && slot == other.slot && dims == other.dims && position == other.position &&
         length == other.length && others == other.others && further == other.further;
}

Step together(const std::vector<Step>& steps) {
  Step found = steps.front();
  if (steps.size() == 1) return found;
  const bool are_of_one = steps[1].request == found.request;
  found.dims.set("batch", steps.size());
  if (are_of_one) found.further = steps.size() - 1;
  for (auto step = steps.begin() + 1; step != steps.end(); ++step) {
    found.position.push_back(step->position.front());
    found.length.push_back(step->length.front());
    if (!are_of_one) found.others.push_back(step->members().front());
    if (!found.busy_s) found.busy_s = step->busy_s;
  }
  return found;
}

namespace {

/// The request, and the step of it, that each row belongs to.
std::vector<StepMember> owners(const Step& step) {
  std::vector<StepMember> found;
  for (std::uint64_t behind = 0; behind <= step.further; ++behind) {
    found.push_back({step.request, step.slot, step.step + behind, step.branch});
  }
  found.insert(found.end(), step.others.begin(), step.others.end());
  return found;
}

}  // namespace

std::vector<Step> apart(const Step& step) {
  if (step.rows() == 1) return {step};
  Step rest = step;
  rest.likely.clear();
  rest.others.clear();
  rest.further = 0;
  std::vector<Step> found;
  for (const StepMember& member : owners(step)) {
    const std::size_t row = found.size();
    Step& own = found.emplace_back(rest);
    own.request = member.request;
    own.slot = member.slot;
    own.step = member.step;
    own.branch = member.branch;
    own.dims.set("batch", 1);
    own.position = {step.position.at(row)};
    own.length = {step.length.at(row)};
    if (!step.likely.empty() && !step.likely.at(row).empty()) own.likely.push_back(step.likely[row]);
  }
  return found;
}

Tensors step_inputs(const Step& step, const Role& role) {
  if (!role.has_step_inputs()) return {};
  std::vector<std::int64_t> index(size_or(step.dims, "sequence", 1));
  std::iota(index.begin(), index.end(), 0);
  const std::vector<std::int64_t> position(step.position.begin(), step.position.end());
  const std::vector<std::int64_t> length(step.length.begin(), step.length.end());
  return {{"position", Tensor::int64({position.size()}, position)},
          {"length", Tensor::int64({length.size()}, length)},
          {"index", Tensor::int64({index.size()}, index)}};
}

std::vector<Row> rows_of(const Step& step, std::uint64_t max_batch) {
  const std::uint64_t first = step.slot * max_batch;
  if (step.position.empty()) return {{step.request, first, step.step, 0, 0, step.branch}};
  std::vector<Row> rows;
  if (step.rows() > 1) {
    for (const StepMember& member : owners(step)) {
      const std::size_t at = rows.size();
      rows.push_back(
          {member.request, member.slot * max_batch, member.step, step.position[at], step.length[at], member.branch});
    }
    return rows;
  }
  for (std::size_t at = 0; at < step.position.size(); ++at) {
    rows.push_back({step.request, first + at, step.step, step.position[at], step.length[at], step.branch});
  }
  return rows;
}

namespace {

/// The step of a message of several rows of one token each, of these requests.
Step step_of_rows(const messages::Data& data, const std::vector<StepMember>& members) {
  Step step;
  step.request = members.front().request;
  step.slot = members.front().slot;
  step.step = members.front().step;
  step.branch = members.front().branch;
  step.phase = data.phase;
  step.dims = data.dims;
  step.busy_s = data.busy_s;
  step.likely = data.likely;
  step.others.assign(members.begin() + 1, members.end());
  for (const Row& row : data.rows) {
    step.position.push_back(row.position);
    step.length.push_back(row.length);
  }
  return step;
}

Step step_of_tokens(const messages::Data& data, const Role& role) {
  const Row& first = data.rows.front();
  const std::uint64_t most = build::most_tokens(role.model()), slot = first.row / role.model().max_batch;
  if (data.phase != "decode" || !data.open.empty() || data.rows.size() > most) {
    throw run_error("a step of " + in_quotes(data.phase) + " has " + std::to_string(data.rows.size()) +
                    " tokens of a request, at most " + std::to_string(most) + " are planned for");
  }
  for (std::size_t behind = 0; behind < data.rows.size(); ++behind) {
    const Row& row = data.rows[behind];
    const bool follows = row.step == first.step + behind && row.position == first.position + behind;
    const bool is_own =
        row.request == first.request && row.row == slot * role.model().max_batch && row.branch == first.branch;
    if (follows && is_own && first.step != 0) continue;
    throw run_error("step " + std::to_string(row.step) + " does not follow step " + std::to_string(first.step) +
                    " of request " + std::to_string(first.request));
  }
  Step step = step_of_rows(data, {{first.request, slot, first.step, first.branch}});
  step.further = data.rows.size() - 1;
  return step;
}

Step shared_step_of(const messages::Data& data, const Role& role) {
  const build::Model& model = role.model();
  if (data.phase != "decode" || !data.open.empty() || data.rows.size() > model.step_requests) {
    throw run_error(std::to_string(data.rows.size()) + " requests do not share a step of " + in_quotes(data.phase) +
                    " in this build");
  }
  std::vector<StepMember> members;
  std::set<std::uint64_t> requests, slots;
  for (const Row& row : data.rows) {
    const std::uint64_t slot = row.row / model.max_batch;
    if (row.row != slot * model.max_batch || slot >= model.max_requests) {
      throw run_error("row " + std::to_string(row.row) + " is not the first of a slot");
    }
    if (row.step == 0) {
      throw run_error("the step that opens request " + std::to_string(row.request) + " is shared");
    }
    members.push_back({row.request, slot, row.step, row.branch});
    requests.insert(row.request);
    slots.insert(slot);
  }
  if (requests.size() < members.size() || slots.size() < members.size()) {
    throw run_error("a request or a slot has two rows of a shared step");
  }
  return step_of_rows(data, members);
}

}  // namespace

Step step_of(const messages::Data& data, const Role& role) {
  const std::uint64_t most = role.model().max_batch;
  const Row& first = data.rows.front();
  const Row& last = data.rows.back();
  if (role.model().step_requests > 1 && last.request != first.request) return shared_step_of(data, role);
  if (build::most_tokens(role.model()) > 1 && last.step != first.step) return step_of_tokens(data, role);
  const std::uint64_t slot = first.row / most;
  for (std::size_t at = 0; at < data.rows.size(); ++at) {
    const Row& row = data.rows[at];
    const bool is_own = row.request == first.request && row.step == first.step && row.branch == first.branch;
    if (is_own && row.row == slot * most + at) continue;
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
  Step step{first.request, slot, first.step,   data.phase,  data.dims, {}, {}, {},
            data.likely,   {},   first.branch, data.busy_s, 0};
  for (const Row& row : data.rows) {
    if (!role.has_step_inputs()) break;
    step.position.push_back(row.position);
    step.length.push_back(row.length);
  }
  if (!data.open.empty()) step.opening = data.open.front();
  return step;
}

namespace {

/// The sequences of a step of this kind at most.
std::uint64_t row_limit(const Step& step, const build::Model& model) {
  if (step.further != 0) return build::most_tokens(model);
  return step.others.empty() ? model.max_batch : model.step_requests;
}

void check_rows(const Step& step, const Role& role) {
  const std::uint64_t rows = size_or(step.dims, "batch", 1), fresh = size_or(step.dims, "sequence", 1);
  const std::uint64_t positions = step.position.size(), lengths = step.length.size();
  const build::Model& model = role.model();
  if (positions != rows || lengths != rows || rows > row_limit(step, model)) {
    throw run_error(std::to_string(rows) + " sequences with " + std::to_string(positions) + " positions and " +
                    std::to_string(lengths) + " lengths");
  }
  const std::uint64_t most = model.max_sequence;
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
  for (const StepMember& member : step.members()) {
    if (member.branch <= (step.phase == "decode" ? member.step : 0)) continue;
    throw run_error("step " + std::to_string(member.step) + " of " + in_quotes(step.phase) + " is not of branch " +
                    std::to_string(member.branch));
  }
  if (!step.likely.empty() && step.likely.size() != size_or(step.dims, "batch", 1)) {
    throw run_error("probabilities of " + std::to_string(step.likely.size()) + " tokens");
  }
  if (is_first != step.opening.has_value()) throw run_error("a request is opened by its step 0, and by no other");
  for (const auto& [name, size] : step.dims) {
    const bool is_of_rows = step.rows() > 1 && name == "batch";
    const std::uint64_t most = is_of_rows ? row_limit(step, model) : size_or(role.dims(), name, 0);
    if (size <= most && (is_of_rows || role.dims().contains(name))) continue;
    throw run_error(name + " is " + std::to_string(size) + ", at most " + std::to_string(most) + " is planned for");
  }
  const bool are_single = size_or(step.dims, "sequence", 1) == 1 &&
                          std::ranges::all_of(step.length, [](std::uint64_t length) { return length == 1; });
  if (step.rows() > 1 && !are_single) {
    throw run_error("rows of " + list_text(step.length) + " tokens in a step of " + std::to_string(step.rows()) +
                    " rows, one each is planned for");
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
    throw run_error(std::to_string(specs.size()) + " tensors are announced, " + std::to_string(frames.size()) +
                    " came");
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
