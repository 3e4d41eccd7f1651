// Written by `python -m partc.format.native native/src/format`: change the Python structs, not this file.

#pragma once

#include "format/plain.hpp"

namespace partc::messages {

/// `[name, dtype, shape]` of a tensor whose bytes lie in the frames.
struct TensorSpec {
  std::string name{};
  std::string dtype{};
  std::vector<std::uint64_t> shape{};
  bool operator==(const TensorSpec&) const = default;
};

/// `[request, row, step, position, length, branch]`: one sequence in a step.
struct Row {
  std::uint64_t request{};
  std::uint64_t row{};
  std::uint64_t step{};
  std::uint64_t position{};
  std::uint64_t length{};
  std::uint64_t branch = 0;
  bool operator==(const Row&) const = default;
};

/// `[token, logprob]`: a token, and how likely the model has it.
struct Likely {
  std::uint64_t token{};
  double logprob{};
  bool operator==(const Likely&) const = default;
};

/// The choice of the next token; the defaults are greedy.
struct Sampling {
  double temperature = 0.0;
  std::uint64_t top_k = 0;
  double top_p = 1.0;
  std::uint64_t seed = 0;
  std::uint64_t likely = 0;
  bool operator==(const Sampling&) const = default;
};

/// The rows of an earlier request of the slot with which a request begins.
struct Reuse {
  std::uint64_t request{};
  std::uint64_t rows{};
  bool operator==(const Reuse&) const = default;
};

/// Facts about a request that every device gets with its step 0.
struct Opening {
  std::uint64_t request{};
  Sampling sampling{};
  bool trace = false;
  std::optional<Reuse> reuse{};
  bool operator==(const Opening&) const = default;
};

/// The step that a request in flight has reached.
struct Reached {
  std::uint64_t request{};
  std::uint64_t slot{};
  std::uint64_t step{};
  bool operator==(const Reached&) const = default;
};

/// `[request, submodule, steps, exact]`: the rows of so many steps, without a gap, lie in a sub-module's states.
struct Held {
  std::uint64_t request{};
  std::string submodule{};
  std::uint64_t steps{};
  bool exact = false;
  bool operator==(const Held&) const = default;
};

/// The step from which a request goes on, with all that a device must know that has not seen its beginning.
struct Resumption {
  std::uint64_t request{};
  std::uint64_t slot{};
  Sampling sampling{};
  bool trace{};
  std::uint64_t step{};
  std::string phase{};
  std::vector<std::vector<std::uint64_t>> ends{};
  bool operator==(const Resumption&) const = default;
};

/// An error on its way to another process.
struct Problem {
  std::string cause{};
  std::string message{};
  std::optional<std::string> where{};
  std::optional<std::string> hint{};
  bool operator==(const Problem&) const = default;
};

/// Readings of a device's sensors. Null: the system does not tell.
struct Readings {
  std::optional<std::uint64_t> memory_available_bytes{};
  std::optional<std::uint64_t> memory_own_bytes{};
  std::optional<double> cpu_pressure{};
  std::optional<double> memory_pressure{};
  std::optional<double> temperature_c{};
  std::optional<double> battery{};
  std::optional<bool> is_plugged{};
  bool operator==(const Readings&) const = default;
};

/// `[submodule, phase, runs, seconds]`: how long a sub-module takes.
struct Work {
  std::string submodule{};
  std::string phase{};
  std::uint64_t runs{};
  double seconds{};
  bool operator==(const Work&) const = default;
};

/// `[phase, steps, seconds]`: how long the steps of a phase take.
struct Steps {
  std::string phase{};
  std::uint64_t steps{};
  double seconds{};
  bool operator==(const Steps&) const = default;
};

/// A device as it is.
struct Vitals {
  Readings readings{};
  std::vector<std::string> reached{};
  std::vector<Work> work{};
  std::uint64_t requests = 0;
  std::uint64_t queue = 0;
  Map<std::string, bool> links{};
  bool operator==(const Vitals&) const = default;
};

/// One device, as the source knows it.
struct DeviceStatus {
  std::string device{};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> submodules{};
  bool is_present = false;
  std::optional<double> age_s{};
  std::optional<double> answer_s{};
  std::optional<Vitals> vitals{};
  std::optional<double> away_s{};
  std::uint64_t losses = 0;
  bool shares = false;
  bool operator==(const DeviceStatus&) const = default;
};

/// A change of placement.
struct Change {
  std::uint64_t epoch{};
  double age_s{};
  std::string cause{};
  double stopped_s{};
  bool operator==(const Change&) const = default;
};

/// A ring, as its source knows it.
struct RingStatus {
  std::uint64_t epoch{};
  std::string placement{};
  Map<std::string, double> predicted{};
  std::vector<Steps> steps{};
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  std::uint64_t tokens_left = 0;
  std::vector<DeviceStatus> devices{};
  std::vector<Change> changes{};
  std::uint64_t moves = 0;
  bool operator==(const RingStatus&) const = default;
};

/// First message of a connection. Whoever opened it tells who it is and what it runs.
struct Hello {
  static constexpr std::string_view kind = "hello";
  std::uint64_t v = 2;
  std::string name{};
  std::uint64_t session{};
  Bytes plan{};
  Bytes placement{};
  std::uint64_t epoch{};
  std::uint64_t incarnation{};
  std::string address = "";
  bool shares = false;
  bool operator==(const Hello&) const = default;
};

/// The connection is accepted.
struct Welcome {
  static constexpr std::string_view kind = "welcome";
  std::string name{};
  std::uint64_t incarnation{};
  std::uint64_t epoch{};
  std::uint64_t next{};
  std::uint64_t first_request = 0;
  Map<std::string, Fact> info{};
  bool operator==(const Welcome&) const = default;
};

/// The connection is not accepted: another build, another placement, another name than the key's.
struct Refuse {
  static constexpr std::string_view kind = "refuse";
  Problem problem{};
  bool operator==(const Refuse&) const = default;
};

/// Values for a step; one frame a tensor.
struct Data {
  static constexpr std::string_view kind = "data";
  std::uint64_t session{};
  std::uint64_t epoch{};
  std::uint64_t seq{};
  std::string phase{};
  Map<std::string, std::uint64_t> dims{};
  std::vector<Row> rows{};
  std::vector<TensorSpec> values{};
  std::vector<Opening> open{};
  std::vector<std::vector<Likely>> likely{};
  std::optional<double> busy_s{};
  bool operator==(const Data&) const = default;
};

/// Everything below `seq` has arrived.
struct Ack {
  static constexpr std::string_view kind = "ack";
  std::uint64_t session{};
  std::uint64_t epoch{};
  std::uint64_t seq{};
  bool operator==(const Ack&) const = default;
};

/// This device has loaded its sub-modules, and all of its links stand.
struct Ready {
  static constexpr std::string_view kind = "ready";
  std::uint64_t next_request{};
  Bytes placement{};
  std::uint64_t epoch{};
  std::uint64_t incarnation{};
  bool operator==(const Ready&) const = default;
};

/// A link of this device broke.
struct Unready {
  static constexpr std::string_view kind = "unready";
  std::string lost{};
  bool operator==(const Unready&) const = default;
};

/// Addresses of devices. A phone that returns has another one; whoever sends to it connects there.
struct Addresses {
  static constexpr std::string_view kind = "addresses";
  Map<std::string, std::string> addresses{};
  bool operator==(const Addresses&) const = default;
};

/// The request is over.
struct Close {
  static constexpr std::string_view kind = "close";
  std::uint64_t request{};
  bool report{};
  bool operator==(const Close&) const = default;
};

/// A request cannot go on because of what happened here.
struct Fail {
  static constexpr std::string_view kind = "fail";
  std::optional<std::uint64_t> request{};
  bool earlier{};
  Problem problem{};
  bool operator==(const Fail&) const = default;
};

/// The times of a request: one float64 table (steps, columns), in frames of at most 64 KiB.
struct Timings {
  static constexpr std::string_view kind = "timings";
  std::uint64_t request{};
  std::string device{};
  std::vector<std::string> columns{};
  std::vector<TensorSpec> values{};
  bool operator==(const Timings&) const = default;
};

/// Tensors of a traced request, in frames of at most 64 KiB.
struct Crossed {
  static constexpr std::string_view kind = "crossed";
  std::uint64_t request{};
  std::string device{};
  std::string peer{};
  std::uint64_t step{};
  std::vector<TensorSpec> values{};
  bool operator==(const Crossed&) const = default;
};

/// A question whether the loop of the other end is alive.
struct Ping {
  static constexpr std::string_view kind = "ping";
  std::uint64_t token = 0;
  bool operator==(const Ping&) const = default;
};

/// The answer to `ping`.
struct Pong {
  static constexpr std::string_view kind = "pong";
  std::uint64_t token{};
  bool computing{};
  std::string doing{};
  bool operator==(const Pong&) const = default;
};

/// The runners shall end.
struct Shutdown {
  static constexpr std::string_view kind = "shutdown";
  bool operator==(const Shutdown&) const = default;
};

/// A placement is to follow the one in force; the frames are its text. Nothing changes until `commit`.
struct Prepare {
  static constexpr std::string_view kind = "prepare";
  Bytes placement{};
  std::uint64_t epoch{};
  Map<std::string, std::string> addresses{};
  Map<std::string, std::string> holders{};
  std::vector<Reached> requests{};
  bool stands_still{};
  bool operator==(const Prepare&) const = default;
};

/// The device is ready for `commit`: everything is loaded, all links are up, and all available rows have arrived.
struct Prepared {
  static constexpr std::string_view kind = "prepared";
  std::uint64_t epoch{};
  std::uint64_t incarnation{};
  std::vector<Held> have{};
  std::optional<Problem> problem{};
  bool operator==(const Prepared&) const = default;
};

/// The prepared placement is in force. A device that is not `incarnation` any more ignores it.
struct Commit {
  static constexpr std::string_view kind = "commit";
  Bytes placement{};
  std::uint64_t epoch{};
  std::uint64_t incarnation{};
  std::vector<Resumption> requests{};
  bool operator==(const Commit&) const = default;
};

/// The change will not be: a device was lost meanwhile, or cannot prepare it.
struct Abort {
  static constexpr std::string_view kind = "abort";
  std::uint64_t epoch{};
  Problem problem{};
  bool operator==(const Abort&) const = default;
};

/// Rows of a state are asked for, one part of them at a time.
struct Want {
  static constexpr std::string_view kind = "want";
  std::uint64_t epoch{};
  std::uint64_t request{};
  std::string submodule{};
  std::uint64_t begin{};
  std::uint64_t end{};
  std::uint64_t part{};
  bool waits{};
  bool operator==(const Want&) const = default;
};

/// The rows that some steps of a request wrote, one part of them, in frames of at most 64 KiB.
struct Rows {
  static constexpr std::string_view kind = "rows";
  std::uint64_t epoch{};
  std::uint64_t request{};
  std::string submodule{};
  std::uint64_t begin{};
  std::uint64_t end{};
  std::uint64_t part{};
  std::uint64_t parts{};
  std::uint64_t sequences{};
  std::string state{};
  std::uint64_t row{};
  std::uint64_t position{};
  std::vector<TensorSpec> values{};
  bool operator==(const Rows&) const = default;
};

/// A request: token ids, or tensors in the frames. Clients tokenise.
struct Submit {
  static constexpr std::string_view kind = "submit";
  Bytes ticket{};
  std::vector<std::vector<std::uint64_t>> prompts{};
  std::uint64_t max_new_tokens{};
  Sampling sampling{};
  std::vector<std::uint64_t> stop{};
  bool ignore_eos{};
  bool trace{};
  std::vector<TensorSpec> values{};
  std::vector<std::vector<std::uint64_t>> known{};
  bool reuse = false;
  bool drafts = false;
  std::vector<std::uint64_t> expected{};
  bool operator==(const Submit&) const = default;
};

/// The tokens of one step.
struct Token {
  static constexpr std::string_view kind = "token";
  Bytes ticket{};
  std::uint64_t step{};
  std::vector<std::optional<std::uint64_t>> tokens{};
  std::vector<std::string> finish{};
  std::vector<std::vector<Likely>> likely{};
  bool operator==(const Token&) const = default;
};

/// `timings` of one device, passed on.
struct Stats {
  static constexpr std::string_view kind = "stats";
  Bytes ticket{};
  std::string device{};
  std::vector<std::string> columns{};
  std::vector<TensorSpec> values{};
  bool operator==(const Stats&) const = default;
};

/// `crossed`, passed on.
struct Trace {
  static constexpr std::string_view kind = "trace";
  Bytes ticket{};
  std::string device{};
  std::string peer{};
  std::uint64_t step{};
  std::vector<TensorSpec> values{};
  bool operator==(const Trace&) const = default;
};

/// The end of a request that succeeded; output tensors lie in the frames.
struct Result {
  static constexpr std::string_view kind = "result";
  Bytes ticket{};
  std::vector<std::vector<std::uint64_t>> tokens{};
  std::vector<std::string> finish{};
  double elapsed_s{};
  std::uint64_t replayed = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t reused = 0;
  std::uint64_t drafted = 0;
  std::uint64_t accepted = 0;
  std::vector<TensorSpec> values{};
  bool operator==(const Result&) const = default;
};

/// The end of a request that failed.
struct Error {
  static constexpr std::string_view kind = "error";
  Bytes ticket{};
  Problem problem{};
  bool operator==(const Error&) const = default;
};

/// Cancels a request.
struct Cancel {
  static constexpr std::string_view kind = "cancel";
  Bytes ticket{};
  bool operator==(const Cancel&) const = default;
};

/// Asks for another placement of this build. The frames hold its text; its epoch is ignored.
struct Place {
  static constexpr std::string_view kind = "place";
  Bytes ticket{};
  std::string reason = "";
  bool operator==(const Place&) const = default;
};

/// The placement that was asked for is in force.
struct Placed {
  static constexpr std::string_view kind = "placed";
  Bytes ticket{};
  std::uint64_t epoch{};
  double seconds{};
  double stopped_s{};
  std::uint64_t steps{};
  bool operator==(const Placed&) const = default;
};

/// A client whose connection broke goes on with its request: it gets the tokens that it missed.
struct Resume {
  static constexpr std::string_view kind = "resume";
  Bytes ticket{};
  std::uint64_t from_step{};
  bool operator==(const Resume&) const = default;
};

/// A sub-module shall be timed, alone.
struct Measure {
  static constexpr std::string_view kind = "measure";
  Bytes ticket{};
  std::string submodule{};
  Map<std::string, std::uint64_t> dims{};
  std::vector<std::uint64_t> position{};
  std::vector<std::uint64_t> length{};
  std::string sample{};
  std::uint64_t repeats{};
  std::uint64_t touch_bytes{};
  bool operator==(const Measure&) const = default;
};

/// Seconds of `measure`.
struct Measured {
  static constexpr std::string_view kind = "measured";
  Bytes ticket{};
  double load_s{};
  double reset_s{};
  std::vector<double> seconds{};
  std::vector<double> delays{};
  bool operator==(const Measured&) const = default;
};

/// The device shall be one of a ring of one or two.
struct Join {
  static constexpr std::string_view kind = "join";
  Bytes ticket{};
  std::vector<std::string> ring{};
  Map<std::string, std::string> peers{};
  bool operator==(const Join&) const = default;
};

/// The device joins.
struct Joined {
  static constexpr std::string_view kind = "joined";
  Bytes ticket{};
  bool operator==(const Joined&) const = default;
};

/// The client wants to be told how the ring is, by `status`.
struct Watch {
  static constexpr std::string_view kind = "watch";
  Bytes ticket{};
  double period_s{};
  bool operator==(const Watch&) const = default;
};

/// Asks for a `sensed` report; the device keeps the times of its sub-modules from now on.
struct Sense {
  static constexpr std::string_view kind = "sense";
  bool ends = false;
  bool operator==(const Sense&) const = default;
};

/// Report of a device.
struct Sensed {
  static constexpr std::string_view kind = "sensed";
  Vitals vitals{};
  bool operator==(const Sensed&) const = default;
};

/// State of the ring.
struct Status {
  static constexpr std::string_view kind = "status";
  Bytes ticket{};
  RingStatus ring{};
  bool operator==(const Status&) const = default;
};

using AnyMessage = std::variant<Hello, Welcome, Refuse, Data, Ack, Ready, Unready, Addresses, Close, Fail, Timings, Crossed, Ping, Pong, Shutdown, Prepare, Prepared, Commit, Abort, Want, Rows, Submit, Token, Stats, Trace, Result, Error, Cancel, Place, Placed, Resume, Measure, Measured, Join, Joined, Watch, Sense, Sensed, Status>;

/// Throws Error: it is no message.
AnyMessage read_message(const Value& value);
std::string write_message(const AnyMessage& message);
std::string_view kind_of(const AnyMessage& message);

}  // namespace partc::messages
