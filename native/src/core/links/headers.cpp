#include "core/links/headers.hpp"

#include "core/tokens.hpp"
#include "format/text.hpp"

namespace partc::core {

Headers::Headers(RolePtr role) : role_(std::move(role)) {
  for (const auto& [phase, items] : role_->programs) {
    for (const program::Instruction& item : items) {
      for (const program::Message& message : program::awaits(item))
        awaited_.emplace(phase, message.device, message.values);
      const auto* emit = std::get_if<program::Emit>(&item);
      if (emit != nullptr && role_->generates()) tokens_.insert(emit->values.begin(), emit->values.end());
    }
  }
}

std::pair<Step, Tensors> Headers::read(const std::string& peer, const messages::Data& data,
                                       const Frames& frames) const {
  Step step = step_of(data, *role_);
  check_step(step, *role_);
  program::Names names;
  for (const messages::TensorSpec& spec : data.values) names.push_back(spec.name);
  if (!awaited_.contains({data.phase, peer, names})) {
    throw run_error(joined(names, ", ") + " is not what " + data.phase + " awaits from " + peer);
  }
  check_specs(data.values, role_->types, step.dims);
  check_sizes(data.values, frames);
  Tensors values;
  for (std::size_t at = 0; at < frames.size(); ++at) {
    values.set(names[at], to_tensor(frames[at], data.values[at].dtype, data.values[at].shape));
  }
  check_drawn(step, values);
  return {std::move(step), std::move(values)};
}

/// Hold what another device has drawn against the vocabulary: the client is told of it as it came. Throws Error.
void Headers::check_drawn(const Step& step, const Tensors& values) const {
  Counts drawn;
  bool is_drawn = false;
  for (const auto& [name, tensor] : values) {
    if (!tokens_.contains(name)) continue;
    is_drawn = true;
    for (const std::int64_t token : tensor.elements<std::int64_t>()) {
      if (token < 0) throw run_error("token " + std::to_string(token) + " is below 0", "", "token ids count from 0");
      drawn.push_back(static_cast<std::uint64_t>(token));
    }
  }
  if (!is_drawn) return;
  for (const auto& row : step.likely) {
    for (const auto& each : row) drawn.push_back(each.token);
  }
  check_tokens(drawn, "", role_->model());
}

}  // namespace partc::core
