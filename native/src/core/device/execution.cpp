#include "core/device/execution.hpp"

#include <algorithm>
#include <string_view>

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/text.hpp"

namespace partc::core {
namespace {

/// Both [batch, likely], as they travel.
Likelies likelies(const Tensor& ids, const Tensor& logarithms) {
  Likelies found(ids.shape.front());
  const std::size_t count = ids.shape.back();
  for (std::size_t row = 0; row < found.size(); ++row) {
    for (std::size_t at = row * count; at < (row + 1) * count; ++at) {
      const auto id = static_cast<std::uint64_t>(ids.elements<std::int64_t>()[at]);
      found[row].push_back({id, logarithms.elements<double>()[at]});
    }
  }
  return found;
}

bool needs_engine(const program::Instruction& instruction) {
  return std::holds_alternative<program::Run>(instruction) || std::holds_alternative<program::Sample>(instruction);
}

}  // namespace

Execution::Execution(ScriptPtr script, Step of_step, std::vector<Row> rows, bool trace, Tensors values,
                     Timing of_timing, bool of_resets)
    : step(std::move(of_step)),
      timing(std::move(of_timing)),
      resets(of_resets),
      tokens(1 + step.further),
      script_(std::move(script)),
      rows_(std::move(rows)),
      trace_(trace),
      values_(std::move(values)),
      program_(&script_->programs.at(step.phase)) {}

const program::Message* Execution::awaited() const {
  if (is_over()) return nullptr;
  for (const program::Message& message : (*program_)[at_].awaits) {
    if (!inbox_.contains(message)) return &message;
  }
  return nullptr;
}

std::string Execution::works_at() const {
  const program::Run* run = std::get_if<program::Run>(&(*program_)[at_].instruction);
  return run == nullptr ? std::string(SAMPLE) : run->submodule;
}

bool Execution::has_begun(const std::string& submodule, bool is_computing) const {
  const std::size_t begun = at_ + (is_computing ? 1 : 0);
  return std::ranges::any_of(program_->begin(), program_->begin() + static_cast<std::ptrdiff_t>(begun),
                             [&](const Line& line) {
                               const auto* run = std::get_if<program::Run>(&line.instruction);
                               return run != nullptr && run->submodule == submodule;
                             });
}

void Execution::deliver(const std::string& peer, const Step& of, const Tensors& values, double now, Actions& out) {
  program::Message key{peer, {}};
  for (const auto& [name, tensor] : values) key.values.push_back(name);
  if (!came_.insert(key).second) {
    throw refused(peer + " sent " + joined(key.values, ", ") + " twice in step " + std::to_string(of.step));
  }
  if (!of.likely.empty()) step.likely = of.likely;
  if (of.busy_s && *of.busy_s > step.busy_s.value_or(0.0)) step.busy_s = of.busy_s;
  inbox_[key] = {values, now};
  for (const auto& [name, tensor] : values) timing.received_bytes += tensor.bytes.size;
  if (trace_ && of.phase != program::REPLAY) out.push_back(Seen{peer, of, values});
}

Step Execution::as_told() const {
  Step told = step;
  if (told.busy_s) told.busy_s = std::max(*told.busy_s, timing.compute_s);
  return told;
}

bool Execution::advance(bool computes, Actions& out) {
  while (!is_over() && awaited() == nullptr) {
    if (!computes && needs_engine((*program_)[at_].instruction)) return false;
    if (execute((*program_)[at_].instruction, out)) return true;
    pass();
  }
  return false;
}

void Execution::computed(const std::vector<Tensor>& values, double seconds) {
  const program::Names names = program::writes((*program_)[at_].instruction);
  if (std::holds_alternative<program::Sample>((*program_)[at_].instruction) && values.size() == 3) {
    step.likely = likelies(values[1], values[2]);
    for (std::size_t row = 0; rows_.size() > 1 && row < step.likely.size(); ++row) {
      step.likely[row].resize(std::min<std::size_t>(step.likely[row].size(), rows_.at(row).sampling.likely));
    }
  } else if (names.size() != values.size()) {
    throw internal_error("other values were computed than were asked for");
  }
  for (std::size_t at = 0; at < names.size(); ++at) values_.set(names[at], values[at]);
  timing.compute_s += seconds;
  pass();
}

void Execution::drop() {
  values_.clear();
  inbox_.clear();
}

/// Carry out an instruction; whether it must be computed.
bool Execution::execute(const program::Instruction& instruction, Actions& out) {
  return std::visit(Match{[&](const program::Recv& item) {
                            receive(item);
                            return false;
                          },
                          [&](const program::Run& item) { return run(item, out); },
                          [&](const program::Send& item) {
                            Tensors sent = named(item.values);
                            for (const auto& [name, tensor] : sent) timing.sent_bytes += tensor.bytes.size;
                            out.push_back(Forward{item.device, as_told(), std::move(sent)});
                            return false;
                          },
                          [&](const program::Sample& item) {
                            if (trace_) out.push_back(Seen{script_->role->device(), step, named({item.logits})});
                            out.push_back(draw(item.logits));
                            return true;
                          },
                          [&](const program::Add& item) {
                            values_.set(item.total, sum(item.terms));
                            return false;
                          },
                          [&](const program::Cut& item) {
                            cut(item);
                            return false;
                          },
                          [&](const program::Join& item) {
                            values_.set(item.whole, joined_parts(item));
                            return false;
                          },
                          [&](const program::Emit& item) {
                            emitted = named(item.values);
                            return false;
                          },
                          [&](const program::Keep& item) {
                            kept = named(item.values);
                            return false;
                          }},
                    instruction);
}

/// Ask for a sub-module, with the sizes that it is called with; not if it has no elements to compute.
bool Execution::run(const program::Run& item, Actions& out) {
  const Role& role = *script_->role;
  const build::Submodule& module = *role.submodules.at(item.submodule);
  std::vector<Tensor> arrays;
  for (const std::string& name : item.inputs) arrays.push_back(values_.at(name));
  Dims dims = step.dims;
  if (item.inputs != module.inputs) {
    std::vector<const build::TensorType*> own;
    std::vector<Shape> shapes;
    for (const std::string& name : module.inputs) own.push_back(&role.types.at(name));
    for (const Tensor& array : arrays) shapes.push_back(array.shape);
    dims = program::dims_of_call(own, shapes, dims);
    if (module.states.empty() && makes_nothing(item, module, dims)) return false;
  }
  Counts slots;
  for (std::size_t at = 1; at < rows_.size(); ++at) slots.push_back(rows_[at].slot);
  const std::uint64_t slot = rows_.front().slot;
  out.push_back(Compute{item.submodule, slot, std::move(arrays), std::move(dims), resets, std::move(slots)});
  resets = false;
  return true;
}

/// Whether all outputs of a call are empty; then they are there.
bool Execution::makes_nothing(const program::Run& item, const build::Submodule& module, const Dims& dims) {
  std::vector<Tensor> made;
  for (const std::string& name : module.outputs) {
    const build::TensorType& type = script_->role->types.at(name);
    made.push_back({element_type(type.dtype), evaluate_shape(type.shape, dims), Frame::copy("")});
    if (bytes_of(made.back().shape, 1) != 0) return false;
  }
  for (std::size_t at = 0; at < made.size(); ++at) values_.set(item.outputs[at], made[at]);
  return true;
}

void Execution::receive(const program::Recv& instruction) {
  auto found = inbox_.extract({instruction.device, instruction.values});
  for (const auto& [name, tensor] : found.mapped().values) values_.set(name, tensor);
  if (!waiting_since) return;
  timing.wait_s[instruction.device] += std::max(0.0, found.mapped().at - *waiting_since);
  waiting_since.reset();
}

void Execution::cut(const program::Cut& item) {
  const Tensor whole = values_.at(item.whole);
  std::uint64_t begin = 0;
  const Shape sizes = cut_sizes(whole.shape.at(item.axis), item.parts.size());
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    values_.set(item.parts[part], part_of(whole, item.axis, begin, begin + sizes[part]));
    begin += sizes[part];
  }
}

Tensor Execution::joined_parts(const program::Join& item) const {
  std::vector<Tensor> parts;
  for (const std::string& name : item.parts) parts.push_back(values_.at(name));
  return joined_tensors(parts, item.axis);
}

/// The sum in float32, from the first to the last.
Tensor Execution::sum(const program::Names& terms) const {
  const Tensor& first = values_.at(terms.front());
  std::vector<float> total(first.elements<float>().begin(), first.elements<float>().end());
  for (std::size_t at = 1; at < terms.size(); ++at) {
    const std::span<const float> term = values_.at(terms[at]).elements<float>();
    if (term.size() != total.size()) throw internal_error("values of unlike sizes are added");
    for (std::size_t place = 0; place < total.size(); ++place) total[place] += term[place];
  }
  const std::string_view bytes(reinterpret_cast<const char*>(total.data()), total.size() * sizeof(float));
  return {first.type, first.shape, Frame::copy(bytes)};
}

Draw Execution::draw(const std::string& name) const {
  const Tensor& logits = values_.at(name);
  if (logits.shape.size() != 3 || logits.shape[1] != 1) {
    throw internal_error("logits have the shape " + list_text(logits.shape) + ", not (batch, 1, vocabulary)");
  }
  std::vector<messages::Sampling> others;
  for (std::size_t at = 1; at < rows_.size(); ++at) others.push_back(rows_[at].sampling);
  return {logits, rows_.front().sampling, step.end(), std::move(others)};
}

Tensors Execution::named(const program::Names& names) const {
  Tensors found;
  for (const std::string& name : names) found.set(name, values_.at(name));
  return found;
}

/// Go to the next instruction; values that nothing uses any more are let go.
void Execution::pass() {
  for (const std::string& name : (*program_)[at_].dead) values_.erase(name);
  ++at_;
}

}  // namespace partc::core
