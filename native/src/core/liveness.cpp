#include "core/liveness.hpp"

namespace partc::core {
namespace {

double figure(const Map<std::string, double>& predicted, const std::string& name, double usual) {
  const double* found = predicted.find(name);
  return found == nullptr ? usual : *found;
}

}  // namespace

double step_s(const Map<std::string, double>& predicted, const std::string& phase, std::uint64_t rows,
              std::uint64_t tokens) {
  const double planned = phase == "prefill" ? figure(predicted, "prefill_tokens", PLANNED_PROMPT_TOKENS) : 1.0;
  const double size = static_cast<double>(rows * tokens) / std::max(1.0, planned);
  return figure(predicted, phase + "_s", 0.0) * std::max(1.0, size);
}

}  // namespace partc::core
