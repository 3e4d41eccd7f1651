// Written by `python -m partc.format.native native/src/format`: change the Python structs, not this file.

#include "format/kernel_plan.gen.hpp"

#include "format/structs.hpp"

namespace partc {
namespace {

constexpr Limits least_1_most_2147483647{.least = 1u, .most = 2147483647u};
constexpr Limits longest_16_item_least_1_most_2147483647{.longest = 16u, .item = &least_1_most_2147483647};
constexpr Limits one_of_read_update_write{.one_of = "read update write"};
constexpr Limits longest_300_pattern_is_identifier{.longest = 300u, .pattern = is_identifier};
constexpr Limits least_1_most_65535{.least = 1u, .most = 65535u};
constexpr Limits item_least_1_most_2147483647_second_least_1_most_65535_third_least_1_most_65535{.item = &least_1_most_2147483647, .second = &least_1_most_65535, .third = &least_1_most_65535};
constexpr Limits least_1_most_1024{.least = 1u, .most = 1024u};
constexpr Limits least_1_most_64{.least = 1u, .most = 64u};
constexpr Limits item_least_1_most_1024_second_least_1_most_1024_third_least_1_most_64{.item = &least_1_most_1024, .second = &least_1_most_1024, .third = &least_1_most_64};
constexpr Limits most_2147483647{.most = 2147483647u};
constexpr Limits most_9007199254740991{.most = 9007199254740991ull};
constexpr Limits item_most_9007199254740991{.item = &most_9007199254740991};
constexpr Limits one_of_arena_constant_parameter{.one_of = "arena constant parameter"};
constexpr Limits one_of_partc_kernels_1{.one_of = "partc-kernels/1"};
constexpr Limits key_longest_300_pattern_is_identifier{.key = &longest_300_pattern_is_identifier};

}  // namespace

namespace kernel_plan {

template <class Visitor>
void fields(Visitor& visit, Is<KernelTensor> auto& item) {
  visit.begin(Form::map, 2, "");
  visit("dtype", item.dtype, Need::required, anything);
  visit("shape", item.shape, Need::required, longest_16_item_least_1_most_2147483647);
}

template <class Visitor>
void fields(Visitor& visit, Is<KernelParameter> auto& item) {
  visit.begin(Form::map, 3, "");
  visit("dtype", item.dtype, Need::required, anything);
  visit("shape", item.shape, Need::required, longest_16_item_least_1_most_2147483647);
  visit("access", item.access, Need::optional, one_of_read_update_write);
}

template <class Visitor>
void fields(Visitor& visit, Is<Kernel> auto& item) {
  visit.begin(Form::map, 1, "");
  visit("parameters", item.parameters, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<KernelConstant> auto& item) {
  visit.begin(Form::map, 3, "");
  visit("dtype", item.dtype, Need::required, anything);
  visit("shape", item.shape, Need::required, longest_16_item_least_1_most_2147483647);
  visit("data", item.data, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<KernelLaunch> auto& item) {
  visit.begin(Form::map, 5, "");
  visit("function", item.function, Need::required, longest_300_pattern_is_identifier);
  visit("grid", item.grid, Need::required, item_least_1_most_2147483647_second_least_1_most_65535_third_least_1_most_65535);
  visit("block", item.block, Need::required, item_least_1_most_1024_second_least_1_most_1024_third_least_1_most_64);
  visit("shared_bytes", item.shared_bytes, Need::required, most_2147483647);
  visit("arguments", item.arguments, Need::required, item_most_9007199254740991);
}

template <class Visitor>
void fields(Visitor& visit, Is<Place> auto& item) {
  visit.begin(Form::array, 2, "");
  visit("room", item.room, Need::required, one_of_arena_constant_parameter);
  visit("at", item.at, Need::required, most_9007199254740991);
}

template <class Visitor>
void fields(Visitor& visit, Is<KernelCall> auto& item) {
  visit.begin(Form::map, 2, "");
  visit("kernel", item.kernel, Need::required, longest_300_pattern_is_identifier);
  visit("arguments", item.arguments, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<KernelOutput> auto& item) {
  visit.begin(Form::map, 3, "");
  visit("dtype", item.dtype, Need::required, anything);
  visit("shape", item.shape, Need::required, longest_16_item_least_1_most_2147483647);
  visit("place", item.place, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<KernelFunction> auto& item) {
  visit.begin(Form::map, 4, "");
  visit("parameters", item.parameters, Need::required, anything);
  visit("arena_bytes", item.arena_bytes, Need::required, most_9007199254740991);
  visit("calls", item.calls, Need::required, anything);
  visit("outputs", item.outputs, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<KernelPlan> auto& item) {
  visit.begin(Form::map, 4 + item.launches.has_value(), "");
  visit("format", item.format, Need::optional, one_of_partc_kernels_1);
  visit("kernels", item.kernels, Need::required, key_longest_300_pattern_is_identifier);
  visit("constants", item.constants, Need::required, anything);
  visit("functions", item.functions, Need::required, key_longest_300_pattern_is_identifier);
  visit("launches", item.launches, Need::absent, key_longest_300_pattern_is_identifier);
}

KernelPlan read_kernel_plan(const Value& value) { return read_struct<KernelPlan>(value, Source::json); }
Value write_kernel_plan(const KernelPlan& item) { return to_value(item); }

}  // namespace kernel_plan
}  // namespace partc
