#include "engines/plan_checks.hpp"

#include <set>

#include "engines/new_tensor.hpp"
#include "errors.hpp"

namespace partc::engines {
namespace {

using kernel_plan::KernelTensor;

/** The first tensor of a plan that differs from the build's, in words; empty where none does. */
template <class Found>
std::string difference(const std::string& name, const std::vector<Found>& found,
                       const std::vector<KernelTensor>& right) {
  if (found.size() != right.size())
    return name + ": " + std::to_string(found.size()) + ", the build has " + std::to_string(right.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].dtype == right[i].dtype && found[i].shape == right[i].shape) continue;
    return name + "[" + std::to_string(i) + "]: " + type_text(found[i].dtype, found[i].shape) + ", the build has " +
           type_text(right[i].dtype, right[i].shape);
  }
  return "";
}

std::string changes(const std::set<std::uint64_t>& changed, std::size_t first, std::size_t last) {
  for (const std::uint64_t number : changed)
    if (number < first || number >= last)
      return "it changes parameter " + std::to_string(number) + ", which is no state";
  return "";
}

}  // namespace

void check_function(const Entries& entries, const build::Submodule& module, const Entry& entry,
                    const kernel_plan::KernelPlan& plan, const std::vector<KernelTensor>& weights,
                    const std::string& where) {
  const std::string name = function_name(module.name, entry);
  const kernel_plan::KernelFunction* function = plan.functions.find(name);
  if (!function) throw bundle_error("there is no function " + name, where, kRecompile);
  const Dims sizes = entries.sizes(module, entry);
  const auto typed = [&](const std::string& value) { return fixed(entries.types().at(value), sizes); };
  std::vector<KernelTensor> parameters, outputs;
  for (const std::string& value : module.inputs) parameters.push_back(typed(value));
  for (const build::State& state : module.states) parameters.push_back(fixed(build::buffer_of(state), sizes));
  const std::size_t first = module.inputs.size(), last = parameters.size();
  parameters.insert(parameters.end(), weights.begin(), weights.end());
  for (const std::string& value : module.outputs) outputs.push_back(typed(value));
  std::string problem = difference("parameters", function->parameters, parameters);
  if (problem.empty()) problem = difference("outputs", function->outputs, outputs);
  if (problem.empty()) problem = changes(kernel_plan::changed(plan, *function), first, last);
  if (!problem.empty()) throw bundle_error(name + ": " + problem, where, kRecompile);
}

KernelTensor fixed(const build::TensorType& type, const Dims& sizes) {
  return {type.dtype, evaluate_shape(type.shape, sizes)};
}

std::vector<KernelTensor> weight_tensors(const std::vector<safetensors::Entry>& entries) {
  std::vector<KernelTensor> tensors;
  for (const safetensors::Entry& entry : entries) tensors.push_back({std::string(entry.type->name), entry.shape});
  return tensors;
}

}  // namespace partc::engines
