// Written by `python -m partc.format.native native/src/format`: change the Python structs, not this file.

#include "format/placement.gen.hpp"

#include "format/structs.hpp"

namespace partc {
namespace {

constexpr Limits most_9007199254740991{.most = 9007199254740991ull};
constexpr Limits item_most_9007199254740991{.item = &most_9007199254740991};
constexpr Limits pattern_is_device_name{.pattern = is_device_name};
constexpr Limits shortest_1_item_pattern_is_device_name{.shortest = 1u, .item = &pattern_is_device_name};
constexpr Limits one_of_columns_heads_one_sequence{.one_of = "columns heads one sequence"};
constexpr Limits one_of_partc_placement_2{.one_of = "partc-placement/2"};
constexpr Limits longest_64_pattern_is_sha256{.longest = 64u, .pattern = is_sha256};
constexpr Limits pattern_is_phase{.pattern = is_phase};
constexpr Limits key_pattern_is_phase{.key = &pattern_is_phase};
constexpr Limits key_pattern_is_device_name{.key = &pattern_is_device_name};
constexpr Limits key_pattern_is_phase_item_key_pattern_is_device_name{.key = &pattern_is_phase, .item = &key_pattern_is_device_name};
constexpr Limits real_least_0_0_real_most_1000000_0{.real_least = 0.0, .real_most = 1000000.0};
constexpr Limits item_real_least_0_0_real_most_1000000_0{.item = &real_least_0_0_real_most_1000000_0};
constexpr Limits item_pattern_is_device_name{.item = &pattern_is_device_name};

}  // namespace

namespace placement {

template <class Visitor>
void fields(Visitor& visit, Is<Stage> auto& item) {
  visit.begin(Form::map, 3, "");
  visit("submodules", item.submodules, Need::required, item_most_9007199254740991);
  visit("devices", item.devices, Need::required, shortest_1_item_pattern_is_device_name);
  visit("share", item.share, Need::optional, one_of_columns_heads_one_sequence);
}

template <class Visitor>
void fields(Visitor& visit, Is<Placement> auto& item) {
  visit.begin(Form::map, 11, "");
  visit("format", item.format, Need::optional, one_of_partc_placement_2);
  visit("placement_id", item.placement_id, Need::required, longest_64_pattern_is_sha256);
  visit("plan_id", item.plan_id, Need::required, longest_64_pattern_is_sha256);
  visit("epoch", item.epoch, Need::optional, most_9007199254740991);
  visit("source", item.source, Need::required, pattern_is_device_name);
  visit("ring", item.ring, Need::required, shortest_1_item_pattern_is_device_name);
  visit("stages", item.stages, Need::required, key_pattern_is_phase);
  visit("programs", item.programs, Need::required, key_pattern_is_phase_item_key_pattern_is_device_name);
  visit("addresses", item.addresses, Need::required, key_pattern_is_device_name);
  visit("predicted", item.predicted, Need::required, item_real_least_0_0_real_most_1000000_0);
  visit("mirrors", item.mirrors, Need::optional, item_pattern_is_device_name);
}

Placement read_placement(const Value& value) { return read_struct<Placement>(value, Source::json); }
Value write_placement(const Placement& item) { return to_value(item); }

}  // namespace placement
}  // namespace partc
