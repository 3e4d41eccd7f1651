#include "engines/entries.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "engines/new_tensor.hpp"
#include "errors.hpp"
#include "format/program.hpp"
#include "format/text.hpp"

namespace partc::engines {
namespace {

constexpr std::size_t kKeptSizes = 256;

/** The symbols whose product a size is, in order: `batch*sequence` is two of them; else the size alone. */
std::vector<Size> factors(const Size& size) {
  const std::string* text = std::get_if<std::string>(&size);
  if (!text) return {size};
  std::vector<Size> names;
  for (std::size_t begin = 0; begin <= text->size();) {
    const std::size_t end = std::min(text->find('*', begin), text->size());
    std::string name = text->substr(begin, end - begin);
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    const bool is_symbol = !name.empty() && !('0' <= name[0] && name[0] <= '9') &&
                           std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '_'; });
    if (!is_symbol) return {size};
    names.emplace_back(name);
    begin = end + 1;
  }
  return names;
}

/** Calls copy(offset in the whole, offset in the part, elements) for all that lies side by side in both. */
template <class Copy>
void each_run(const Shape& whole, const Shape& part, Copy copy) {
  if (std::ranges::find(part, 0u) != part.end()) return;
  std::size_t axis = part.size();
  std::uint64_t run = 1;
  while (axis > 0 && part[axis - 1] == whole[axis - 1]) run *= part[--axis];
  if (axis > 0) run *= part[--axis];  // of the innermost axis that is cut, the beginning lies side by side
  Shape steps(axis);
  std::uint64_t step = std::accumulate(whole.begin() + static_cast<std::ptrdiff_t>(axis), whole.end(), std::uint64_t{1},
                                       std::multiplies<>());
  for (std::size_t i = axis; i-- > 0; step *= whole[i]) steps[i] = step;
  Shape at(axis, 0);
  for (std::uint64_t done = 0;; done += run) {
    copy(std::inner_product(at.begin(), at.end(), steps.begin(), std::uint64_t{0}), done, run);
    std::size_t i = axis;
    while (i > 0 && ++at[i - 1] == part[i - 1]) at[--i] = 0;
    if (i == 0) return;
  }
}

}  // namespace

Types types_of(const build::Build& build) {
  Types types;
  if (build.model.task != "graph") {
    types["position"] = types["length"] = {"int64", {Size{"batch"}}};
    types["index"] = {"int64", {Size{"sequence"}}};
  }
  for (const auto* ports : {&build.inputs, &build.outputs})
    for (const build::Port& port : *ports) types[port.name] = {port.dtype, port.shape};
  for (const auto& [name, type] : build.values) types[name] = type;
  return types;
}

void Span::fill(std::byte* buffer, const Tensor& array) const {
  const std::uint64_t width = type->bytes;
  if (whole == sizes) {
    std::memcpy(buffer, array.bytes.data, array.bytes.size);
    return;
  }
  std::memset(buffer, 0, bytes_of(whole, width));
  each_run(whole, sizes, [&](std::uint64_t to, std::uint64_t from, std::uint64_t count) {
    std::memcpy(buffer + to * width, array.bytes.data + from * width, count * width);
  });
}

Tensor Span::cut(const std::byte* buffer) const {
  NewTensor array(*type, shape);
  const std::uint64_t width = type->bytes;
  each_run(whole, sizes, [&](std::uint64_t from, std::uint64_t to, std::uint64_t count) {
    std::memcpy(array.data() + to * width, buffer + from * width, count * width);
  });
  return array.take();
}

Entries::Entries(const build::Build& build) : build_(build), types_(types_of(build)) {
  const auto most = [&](const std::string& symbol) {
    const std::uint64_t* size = build.dims.find(symbol);
    return size ? *size : std::numeric_limits<std::uint64_t>::max();
  };
  for (const auto& [name, functions] : build.engine.library->functions) {
    const std::uint64_t most_rows = most(program::row_symbol(name));
    for (const Entry& entry : functions.entries) {
      // Steps of a token may have a row for each request, for those that share one, or for each token of one request.
      const std::uint64_t rows = std::max(build.model.max_requests, build.model.max_sequence);
      const std::uint64_t widest = entry.second == 1 ? std::max(most("batch"), rows) : most("batch");
      if (entry.first <= widest && entry.second <= most_rows) continue;
      throw bundle_error("engine.library.functions: " + name + " has an entry [" + std::to_string(entry.first) + ", " +
                             std::to_string(entry.second) + "], which `dims` do not allow",
                         std::string(BUILD_FILE), kRecompile);
    }
  }
}

Dims Entries::sizes(const build::Submodule& module, const Entry& entry) const {
  Dims dims = build_.dims;
  dims.set("batch", entry.first);
  dims.set(program::row_symbol(module.name), entry.second);
  return dims;
}

const Sizes& Entries::of(const build::Submodule& module, const Dims& dims) {
  Key key{module.name, {dims.begin(), dims.end()}};
  if (const auto found = kept_.find(key); found != kept_.end()) return found->second;
  if (kept_.size() == kKeptSizes) kept_.clear();
  return kept_.emplace(std::move(key), make(module, entry_for(module, dims), dims)).first->second;
}

const Sizes& Entries::exactly(const build::Submodule& module, const Entry& entry, const Dims& dims) {
  ExactKey key{module.name, entry, {dims.begin(), dims.end()}};
  if (const auto found = exact_.find(key); found != exact_.end()) return found->second;
  if (exact_.size() == kKeptSizes) exact_.clear();
  return exact_.emplace(std::move(key), make(module, entry, dims)).first->second;
}

Span Entries::span(const std::string& value, const Dims& entry, const Dims& step) const {
  const build::TensorType& type = types_.at(value);
  Span found{element_type(type.dtype), {}, {}, evaluate_shape(type.shape, step)};
  for (const Size& size : type.shape) {
    for (const Size& factor : factors(size)) {
      found.whole.push_back(evaluate(factor, entry));
      found.sizes.push_back(evaluate(factor, step));
      if (found.sizes.back() > found.whole.back())
        throw run_error(in_quotes(value) + " is larger than its function takes", "", "", "bug");
    }
  }
  return found;
}

Sizes Entries::make(const build::Submodule& module, const Entry& entry, const Dims& dims) const {
  Sizes found{entry, {}, {}};
  const Dims wide = sizes(module, entry);
  for (const std::string& name : module.inputs) found.inputs.push_back(span(name, wide, dims));
  for (const std::string& name : module.outputs) found.outputs.push_back(span(name, wide, dims));
  return found;
}

Entry Entries::entry_for(const build::Submodule& module, const Dims& dims) const {
  std::set<std::string> used;
  const auto note = [&](const std::vector<Size>& shape) {
    for (const Size& size : shape) used.merge(symbols(size));
  };
  for (const std::string& name : module.inputs) note(types_.at(name).shape);
  for (const build::State& state : module.states) note(state.shape);
  const auto of_step = [&](const std::string& symbol) {
    const std::uint64_t* size = used.contains(symbol) ? dims.find(symbol) : nullptr;
    return size ? *size : 1;
  };
  const std::uint64_t batch = of_step("batch"), rows = of_step(program::row_symbol(module.name));
  std::vector<Entry> entries = build_.engine.library->functions.at(module.name).entries;
  std::ranges::sort(entries);
  const std::uint64_t* most = build_.dims.find("batch");
  for (const Entry& entry : entries)
    if ((!most || entry.first <= *most) && entry.first >= batch && entry.second >= rows) return entry;
  throw run_error(module.name + " has no code for " + std::to_string(batch) + " sequences of " + std::to_string(rows) +
                      " tokens",
                  module.file, "send less at once, or compile with a larger max_sequence and max_batch");
}

std::string function_name(const std::string& submodule, const Entry& entry) {
  return submodule + "_b" + std::to_string(entry.first) + "_s" + std::to_string(entry.second);
}

}  // namespace partc::engines
