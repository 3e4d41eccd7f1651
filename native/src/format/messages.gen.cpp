// Written by `python -m partc.format.native native/src/format`: change the Python structs, not this file.

#include "format/messages.gen.hpp"

#include "format/message_parts.hpp"
#include "format/structs.hpp"

namespace partc {
namespace {

constexpr Limits longest_16{.longest = 16u};
constexpr Limits most_4611686018427387904{.most = 4611686018427387904ull};
constexpr Limits most_64{.most = 64u};
constexpr Limits least_1_most_9007199254740991{.least = 1u, .most = 9007199254740991ull};
constexpr Limits one_of_bug_input_lost_peer_refused_stalled{.one_of = "bug input lost-peer refused stalled"};
constexpr Limits longest_65536{.longest = 65536u};
constexpr Limits real_least_0_0_real_most_1_0{.real_least = 0.0, .real_most = 1.0};
constexpr Limits real_least_0_0{.real_least = 0.0};
constexpr Limits one_of_battery_memory_temperature{.one_of = "battery memory temperature"};
constexpr Limits item_one_of_battery_memory_temperature{.item = &one_of_battery_memory_temperature};
constexpr Limits longest_300{.longest = 300u};
constexpr Limits least_2_most_2{.least = 2u, .most = 2u};
constexpr Limits shortest_32_longest_32{.shortest = 32u, .longest = 32u};
constexpr Limits longest_64{.longest = 64u};
constexpr Limits shortest_1{.shortest = 1u};
constexpr Limits real_least_0_0_real_most_1000000_0{.real_least = 0.0, .real_most = 1000000.0};
constexpr Limits longest_256{.longest = 256u};
constexpr Limits least_1{.least = 1u};
constexpr Limits longest_4096{.longest = 4096u};
constexpr Limits shortest_16_longest_16{.shortest = 16u, .longest = 16u};
constexpr Limits real_least_0_0_real_most_86400_0{.real_least = 0.0, .real_most = 86400.0};

}  // namespace

namespace messages {

template <class Visitor>
void fields(Visitor& visit, Is<TensorSpec> auto& item) {
  visit.begin(Form::array, 3, "");
  visit("name", item.name, Need::required, anything);
  visit("dtype", item.dtype, Need::required, anything);
  visit("shape", item.shape, Need::required, longest_16);
}

template <class Visitor>
void fields(Visitor& visit, Is<Row> auto& item) {
  visit.begin(Form::array, 6, "");
  visit("request", item.request, Need::required, most_4611686018427387904);
  visit("row", item.row, Need::required, anything);
  visit("step", item.step, Need::required, anything);
  visit("position", item.position, Need::required, anything);
  visit("length", item.length, Need::required, anything);
  visit("branch", item.branch, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Likely> auto& item) {
  visit.begin(Form::array, 2, "");
  visit("token", item.token, Need::required, anything);
  visit("logprob", item.logprob, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Sampling> auto& item) {
  visit.begin(Form::map, 5, "");
  visit("temperature", item.temperature, Need::optional, anything);
  visit("top_k", item.top_k, Need::optional, anything);
  visit("top_p", item.top_p, Need::optional, anything);
  visit("seed", item.seed, Need::optional, anything);
  visit("likely", item.likely, Need::optional, most_64);
}

template <class Visitor>
void fields(Visitor& visit, Is<Reuse> auto& item) {
  visit.begin(Form::map, 2, "");
  visit("request", item.request, Need::required, most_4611686018427387904);
  visit("rows", item.rows, Need::required, least_1_most_9007199254740991);
}

template <class Visitor>
void fields(Visitor& visit, Is<Opening> auto& item) {
  visit.begin(Form::map, 4, "");
  visit("request", item.request, Need::required, most_4611686018427387904);
  visit("sampling", item.sampling, Need::required, anything);
  visit("trace", item.trace, Need::optional, anything);
  visit("reuse", item.reuse, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Reached> auto& item) {
  visit.begin(Form::map, 3, "");
  visit("request", item.request, Need::required, most_4611686018427387904);
  visit("slot", item.slot, Need::required, anything);
  visit("step", item.step, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Held> auto& item) {
  visit.begin(Form::array, 4, "");
  visit("request", item.request, Need::required, anything);
  visit("submodule", item.submodule, Need::required, anything);
  visit("steps", item.steps, Need::required, anything);
  visit("exact", item.exact, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Resumption> auto& item) {
  visit.begin(Form::map, 7, "");
  visit("request", item.request, Need::required, most_4611686018427387904);
  visit("slot", item.slot, Need::required, anything);
  visit("sampling", item.sampling, Need::required, anything);
  visit("trace", item.trace, Need::required, anything);
  visit("step", item.step, Need::required, anything);
  visit("phase", item.phase, Need::required, anything);
  visit("ends", item.ends, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Problem> auto& item) {
  visit.begin(Form::map, 4, "");
  visit("cause", item.cause, Need::required, one_of_bug_input_lost_peer_refused_stalled);
  visit("message", item.message, Need::required, longest_65536);
  visit("where", item.where, Need::optional, longest_65536);
  visit("hint", item.hint, Need::optional, longest_65536);
}

template <class Visitor>
void fields(Visitor& visit, Is<Readings> auto& item) {
  visit.begin(Form::map, 7, "");
  visit("memory_available_bytes", item.memory_available_bytes, Need::optional, anything);
  visit("memory_own_bytes", item.memory_own_bytes, Need::optional, anything);
  visit("cpu_pressure", item.cpu_pressure, Need::optional, real_least_0_0_real_most_1_0);
  visit("memory_pressure", item.memory_pressure, Need::optional, real_least_0_0_real_most_1_0);
  visit("temperature_c", item.temperature_c, Need::optional, anything);
  visit("battery", item.battery, Need::optional, real_least_0_0_real_most_1_0);
  visit("is_plugged", item.is_plugged, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Work> auto& item) {
  visit.begin(Form::array, 4, "");
  visit("submodule", item.submodule, Need::required, anything);
  visit("phase", item.phase, Need::required, anything);
  visit("runs", item.runs, Need::required, anything);
  visit("seconds", item.seconds, Need::required, real_least_0_0);
}

template <class Visitor>
void fields(Visitor& visit, Is<Steps> auto& item) {
  visit.begin(Form::array, 3, "");
  visit("phase", item.phase, Need::required, anything);
  visit("steps", item.steps, Need::required, anything);
  visit("seconds", item.seconds, Need::required, real_least_0_0);
}

template <class Visitor>
void fields(Visitor& visit, Is<Vitals> auto& item) {
  visit.begin(Form::map, 6, "");
  visit("readings", item.readings, Need::required, anything);
  visit("reached", item.reached, Need::optional, item_one_of_battery_memory_temperature);
  visit("work", item.work, Need::optional, anything);
  visit("requests", item.requests, Need::optional, anything);
  visit("queue", item.queue, Need::optional, anything);
  visit("links", item.links, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<DeviceStatus> auto& item) {
  visit.begin(Form::map, 9, "");
  visit("device", item.device, Need::required, anything);
  visit("submodules", item.submodules, Need::optional, anything);
  visit("is_present", item.is_present, Need::optional, anything);
  visit("age_s", item.age_s, Need::optional, real_least_0_0);
  visit("answer_s", item.answer_s, Need::optional, real_least_0_0);
  visit("vitals", item.vitals, Need::optional, anything);
  visit("away_s", item.away_s, Need::optional, real_least_0_0);
  visit("losses", item.losses, Need::optional, anything);
  visit("shares", item.shares, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Change> auto& item) {
  visit.begin(Form::map, 4, "");
  visit("epoch", item.epoch, Need::required, most_4611686018427387904);
  visit("age_s", item.age_s, Need::required, real_least_0_0);
  visit("cause", item.cause, Need::required, longest_300);
  visit("stopped_s", item.stopped_s, Need::required, real_least_0_0);
}

template <class Visitor>
void fields(Visitor& visit, Is<RingStatus> auto& item) {
  visit.begin(Form::map, 10, "");
  visit("epoch", item.epoch, Need::required, most_4611686018427387904);
  visit("placement", item.placement, Need::required, anything);
  visit("predicted", item.predicted, Need::optional, anything);
  visit("steps", item.steps, Need::optional, anything);
  visit("running", item.running, Need::optional, anything);
  visit("waiting", item.waiting, Need::optional, anything);
  visit("tokens_left", item.tokens_left, Need::optional, anything);
  visit("devices", item.devices, Need::required, anything);
  visit("changes", item.changes, Need::optional, anything);
  visit("moves", item.moves, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Hello> auto& item) {
  visit.begin(Form::map, 9, "hello");
  visit("v", item.v, Need::optional, least_2_most_2);
  visit("name", item.name, Need::required, anything);
  visit("session", item.session, Need::required, anything);
  visit("plan", item.plan, Need::required, shortest_32_longest_32);
  visit("placement", item.placement, Need::required, shortest_32_longest_32);
  visit("epoch", item.epoch, Need::required, most_4611686018427387904);
  visit("incarnation", item.incarnation, Need::required, anything);
  visit("address", item.address, Need::optional, longest_300);
  visit("shares", item.shares, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Welcome> auto& item) {
  visit.begin(Form::map, 6, "welcome");
  visit("name", item.name, Need::required, anything);
  visit("incarnation", item.incarnation, Need::required, anything);
  visit("epoch", item.epoch, Need::required, most_4611686018427387904);
  visit("next", item.next, Need::required, anything);
  visit("first_request", item.first_request, Need::optional, anything);
  visit("info", item.info, Need::required, longest_64);
}

template <class Visitor>
void fields(Visitor& visit, Is<Refuse> auto& item) {
  visit.begin(Form::map, 1, "refuse");
  visit("problem", item.problem, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Data> auto& item) {
  visit.begin(Form::map, 10, "data");
  visit("session", item.session, Need::required, anything);
  visit("epoch", item.epoch, Need::required, most_4611686018427387904);
  visit("seq", item.seq, Need::required, anything);
  visit("phase", item.phase, Need::required, anything);
  visit("dims", item.dims, Need::required, anything);
  visit("rows", item.rows, Need::required, shortest_1);
  visit("values", item.values, Need::required, anything);
  visit("open", item.open, Need::optional, anything);
  visit("likely", item.likely, Need::optional, anything);
  visit("busy_s", item.busy_s, Need::optional, real_least_0_0_real_most_1000000_0);
}

template <class Visitor>
void fields(Visitor& visit, Is<Ack> auto& item) {
  visit.begin(Form::map, 3, "ack");
  visit("session", item.session, Need::required, anything);
  visit("epoch", item.epoch, Need::required, most_4611686018427387904);
  visit("seq", item.seq, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Ready> auto& item) {
  visit.begin(Form::map, 4, "ready");
  visit("next_request", item.next_request, Need::required, most_4611686018427387904);
  visit("placement", item.placement, Need::required, shortest_32_longest_32);
  visit("epoch", item.epoch, Need::required, most_4611686018427387904);
  visit("incarnation", item.incarnation, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Unready> auto& item) {
  visit.begin(Form::map, 1, "unready");
  visit("lost", item.lost, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Addresses> auto& item) {
  visit.begin(Form::map, 1, "addresses");
  visit("addresses", item.addresses, Need::required, longest_256);
}

template <class Visitor>
void fields(Visitor& visit, Is<Close> auto& item) {
  visit.begin(Form::map, 2, "close");
  visit("request", item.request, Need::required, most_4611686018427387904);
  visit("report", item.report, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Fail> auto& item) {
  visit.begin(Form::map, 3, "fail");
  visit("request", item.request, Need::required, anything);
  visit("earlier", item.earlier, Need::required, anything);
  visit("problem", item.problem, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Timings> auto& item) {
  visit.begin(Form::map, 4, "timings");
  visit("request", item.request, Need::required, most_4611686018427387904);
  visit("device", item.device, Need::required, anything);
  visit("columns", item.columns, Need::required, anything);
  visit("values", item.values, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Crossed> auto& item) {
  visit.begin(Form::map, 5, "crossed");
  visit("request", item.request, Need::required, most_4611686018427387904);
  visit("device", item.device, Need::required, anything);
  visit("peer", item.peer, Need::required, anything);
  visit("step", item.step, Need::required, anything);
  visit("values", item.values, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Ping> auto& item) {
  visit.begin(Form::map, 1, "ping");
  visit("token", item.token, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Pong> auto& item) {
  visit.begin(Form::map, 3, "pong");
  visit("token", item.token, Need::required, anything);
  visit("computing", item.computing, Need::required, anything);
  visit("doing", item.doing, Need::required, longest_65536);
}

template <class Visitor>
void fields(Visitor& visit, Is<Shutdown> auto& ) {
  visit.begin(Form::map, 0, "shutdown");
}

template <class Visitor>
void fields(Visitor& visit, Is<Prepare> auto& item) {
  visit.begin(Form::map, 6, "prepare");
  visit("placement", item.placement, Need::required, shortest_32_longest_32);
  visit("epoch", item.epoch, Need::required, least_1);
  visit("addresses", item.addresses, Need::required, longest_256);
  visit("holders", item.holders, Need::required, longest_4096);
  visit("requests", item.requests, Need::required, anything);
  visit("stands_still", item.stands_still, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Prepared> auto& item) {
  visit.begin(Form::map, 4, "prepared");
  visit("epoch", item.epoch, Need::required, least_1);
  visit("incarnation", item.incarnation, Need::required, anything);
  visit("have", item.have, Need::required, anything);
  visit("problem", item.problem, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Commit> auto& item) {
  visit.begin(Form::map, 4, "commit");
  visit("placement", item.placement, Need::required, shortest_32_longest_32);
  visit("epoch", item.epoch, Need::required, least_1);
  visit("incarnation", item.incarnation, Need::required, anything);
  visit("requests", item.requests, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Abort> auto& item) {
  visit.begin(Form::map, 2, "abort");
  visit("epoch", item.epoch, Need::required, least_1);
  visit("problem", item.problem, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Want> auto& item) {
  visit.begin(Form::map, 7, "want");
  visit("epoch", item.epoch, Need::required, most_4611686018427387904);
  visit("request", item.request, Need::required, most_4611686018427387904);
  visit("submodule", item.submodule, Need::required, anything);
  visit("begin", item.begin, Need::required, anything);
  visit("end", item.end, Need::required, anything);
  visit("part", item.part, Need::required, anything);
  visit("waits", item.waits, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Rows> auto& item) {
  visit.begin(Form::map, 12, "rows");
  visit("epoch", item.epoch, Need::required, most_4611686018427387904);
  visit("request", item.request, Need::required, most_4611686018427387904);
  visit("submodule", item.submodule, Need::required, anything);
  visit("begin", item.begin, Need::required, anything);
  visit("end", item.end, Need::required, anything);
  visit("part", item.part, Need::required, anything);
  visit("parts", item.parts, Need::required, anything);
  visit("sequences", item.sequences, Need::required, anything);
  visit("state", item.state, Need::required, anything);
  visit("row", item.row, Need::required, anything);
  visit("position", item.position, Need::required, anything);
  visit("values", item.values, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Submit> auto& item) {
  visit.begin(Form::map, 12, "submit");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("prompts", item.prompts, Need::required, anything);
  visit("max_new_tokens", item.max_new_tokens, Need::required, anything);
  visit("sampling", item.sampling, Need::required, anything);
  visit("stop", item.stop, Need::required, anything);
  visit("ignore_eos", item.ignore_eos, Need::required, anything);
  visit("trace", item.trace, Need::required, anything);
  visit("values", item.values, Need::required, anything);
  visit("known", item.known, Need::optional, anything);
  visit("reuse", item.reuse, Need::optional, anything);
  visit("drafts", item.drafts, Need::optional, anything);
  visit("expected", item.expected, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Token> auto& item) {
  visit.begin(Form::map, 5, "token");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("step", item.step, Need::required, anything);
  visit("tokens", item.tokens, Need::required, anything);
  visit("finish", item.finish, Need::required, anything);
  visit("likely", item.likely, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Stats> auto& item) {
  visit.begin(Form::map, 4, "stats");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("device", item.device, Need::required, anything);
  visit("columns", item.columns, Need::required, anything);
  visit("values", item.values, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Trace> auto& item) {
  visit.begin(Form::map, 5, "trace");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("device", item.device, Need::required, anything);
  visit("peer", item.peer, Need::required, anything);
  visit("step", item.step, Need::required, anything);
  visit("values", item.values, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Result> auto& item) {
  visit.begin(Form::map, 10, "result");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("tokens", item.tokens, Need::required, anything);
  visit("finish", item.finish, Need::required, anything);
  visit("elapsed_s", item.elapsed_s, Need::required, anything);
  visit("replayed", item.replayed, Need::optional, anything);
  visit("mismatches", item.mismatches, Need::optional, anything);
  visit("reused", item.reused, Need::optional, anything);
  visit("drafted", item.drafted, Need::optional, anything);
  visit("accepted", item.accepted, Need::optional, anything);
  visit("values", item.values, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Error> auto& item) {
  visit.begin(Form::map, 2, "error");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("problem", item.problem, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Cancel> auto& item) {
  visit.begin(Form::map, 1, "cancel");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
}

template <class Visitor>
void fields(Visitor& visit, Is<Place> auto& item) {
  visit.begin(Form::map, 2, "place");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("reason", item.reason, Need::optional, longest_300);
}

template <class Visitor>
void fields(Visitor& visit, Is<Placed> auto& item) {
  visit.begin(Form::map, 5, "placed");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("epoch", item.epoch, Need::required, most_4611686018427387904);
  visit("seconds", item.seconds, Need::required, anything);
  visit("stopped_s", item.stopped_s, Need::required, anything);
  visit("steps", item.steps, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Resume> auto& item) {
  visit.begin(Form::map, 2, "resume");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("from_step", item.from_step, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Measure> auto& item) {
  visit.begin(Form::map, 8, "measure");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("submodule", item.submodule, Need::required, anything);
  visit("dims", item.dims, Need::required, anything);
  visit("position", item.position, Need::required, anything);
  visit("length", item.length, Need::required, anything);
  visit("sample", item.sample, Need::required, anything);
  visit("repeats", item.repeats, Need::required, anything);
  visit("touch_bytes", item.touch_bytes, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Measured> auto& item) {
  visit.begin(Form::map, 5, "measured");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("load_s", item.load_s, Need::required, anything);
  visit("reset_s", item.reset_s, Need::required, anything);
  visit("seconds", item.seconds, Need::required, anything);
  visit("delays", item.delays, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Join> auto& item) {
  visit.begin(Form::map, 3, "join");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("ring", item.ring, Need::required, anything);
  visit("peers", item.peers, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Joined> auto& item) {
  visit.begin(Form::map, 1, "joined");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
}

template <class Visitor>
void fields(Visitor& visit, Is<Watch> auto& item) {
  visit.begin(Form::map, 2, "watch");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("period_s", item.period_s, Need::required, real_least_0_0_real_most_86400_0);
}

template <class Visitor>
void fields(Visitor& visit, Is<Sense> auto& item) {
  visit.begin(Form::map, 1, "sense");
  visit("ends", item.ends, Need::optional, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Sensed> auto& item) {
  visit.begin(Form::map, 1, "sensed");
  visit("vitals", item.vitals, Need::required, anything);
}

template <class Visitor>
void fields(Visitor& visit, Is<Status> auto& item) {
  visit.begin(Form::map, 2, "status");
  visit("ticket", item.ticket, Need::required, shortest_16_longest_16);
  visit("ring", item.ring, Need::required, anything);
}

AnyMessage read_message(const Value& value) {
  const std::string& kind = kind_in(value);
  if (kind == Hello::kind) return read_struct<Hello>(value, Source::msgpack);
  if (kind == Welcome::kind) return read_struct<Welcome>(value, Source::msgpack);
  if (kind == Refuse::kind) return read_struct<Refuse>(value, Source::msgpack);
  if (kind == Data::kind) return read_struct<Data>(value, Source::msgpack);
  if (kind == Ack::kind) return read_struct<Ack>(value, Source::msgpack);
  if (kind == Ready::kind) return read_struct<Ready>(value, Source::msgpack);
  if (kind == Unready::kind) return read_struct<Unready>(value, Source::msgpack);
  if (kind == Addresses::kind) return read_struct<Addresses>(value, Source::msgpack);
  if (kind == Close::kind) return read_struct<Close>(value, Source::msgpack);
  if (kind == Fail::kind) return read_struct<Fail>(value, Source::msgpack);
  if (kind == Timings::kind) return read_struct<Timings>(value, Source::msgpack);
  if (kind == Crossed::kind) return read_struct<Crossed>(value, Source::msgpack);
  if (kind == Ping::kind) return read_struct<Ping>(value, Source::msgpack);
  if (kind == Pong::kind) return read_struct<Pong>(value, Source::msgpack);
  if (kind == Shutdown::kind) return read_struct<Shutdown>(value, Source::msgpack);
  if (kind == Prepare::kind) return read_struct<Prepare>(value, Source::msgpack);
  if (kind == Prepared::kind) return read_struct<Prepared>(value, Source::msgpack);
  if (kind == Commit::kind) return read_struct<Commit>(value, Source::msgpack);
  if (kind == Abort::kind) return read_struct<Abort>(value, Source::msgpack);
  if (kind == Want::kind) return read_struct<Want>(value, Source::msgpack);
  if (kind == Rows::kind) return read_struct<Rows>(value, Source::msgpack);
  if (kind == Submit::kind) return read_struct<Submit>(value, Source::msgpack);
  if (kind == Token::kind) return read_struct<Token>(value, Source::msgpack);
  if (kind == Stats::kind) return read_struct<Stats>(value, Source::msgpack);
  if (kind == Trace::kind) return read_struct<Trace>(value, Source::msgpack);
  if (kind == Result::kind) return read_struct<Result>(value, Source::msgpack);
  if (kind == Error::kind) return read_struct<Error>(value, Source::msgpack);
  if (kind == Cancel::kind) return read_struct<Cancel>(value, Source::msgpack);
  if (kind == Place::kind) return read_struct<Place>(value, Source::msgpack);
  if (kind == Placed::kind) return read_struct<Placed>(value, Source::msgpack);
  if (kind == Resume::kind) return read_struct<Resume>(value, Source::msgpack);
  if (kind == Measure::kind) return read_struct<Measure>(value, Source::msgpack);
  if (kind == Measured::kind) return read_struct<Measured>(value, Source::msgpack);
  if (kind == Join::kind) return read_struct<Join>(value, Source::msgpack);
  if (kind == Joined::kind) return read_struct<Joined>(value, Source::msgpack);
  if (kind == Watch::kind) return read_struct<Watch>(value, Source::msgpack);
  if (kind == Sense::kind) return read_struct<Sense>(value, Source::msgpack);
  if (kind == Sensed::kind) return read_struct<Sensed>(value, Source::msgpack);
  if (kind == Status::kind) return read_struct<Status>(value, Source::msgpack);
  throw refused("no kind of message is " + in_quotes(kind, 40));
}

std::string write_message(const AnyMessage& message) {
  return std::visit([](const auto& item) { return to_msgpack(item); }, message);
}

std::string_view kind_of(const AnyMessage& message) {
  return std::visit([](const auto& item) { return item.kind; }, message);
}

}  // namespace messages
}  // namespace partc
