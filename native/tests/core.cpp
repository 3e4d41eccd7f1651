// Devices of src/core, driven by tests/native/device.py: a request makes a device, or gives an event to one.
//
//   ["new", now, build, placement, [contingency …], incarnation, first_request, patience, rejoin, linger] -> number
//   ["on", number, now, kind, …]                                     -> [deadline or null, [[command, …] …]]
//   ["sample", tensor, temperature, top_k, top_p, seed, [position …]] likely]
//     -> [tensor of tokens, and those of what is likely]
//
// Files are texts; a tensor is [type, shape, bytes]; an error is [class, message, where, hint, cause]; the other end of a
// connection is a text (a device) or bytes (a route). What fails is answered by a text.
#include <memory>
#include <string>
#include <vector>

#include "core/device/device.hpp"
#include "core/device/sampling.hpp"
#include "format/codec.hpp"
#include "format/json.hpp"
#include "format/match.hpp"
#include "format/msgpack.hpp"
#include "pipe.hpp"

namespace partc::tests {
namespace {

using namespace core;

constexpr std::size_t HEADER_LIMIT = std::size_t{1} << 24;

const std::string& text(const Value& value) { return *value.as<std::string>(); }
const std::string& bytes(const Value& value) { return value.as<Bytes>()->data; }
const List& list(const Value& value) { return *value.as<List>(); }
std::uint64_t number(const Value& value) { return static_cast<std::uint64_t>(*value.as<Integer>()); }
double real(const Value& value) {
  const Integer* whole = value.as<Integer>();
  return whole == nullptr ? *value.as<double>() : static_cast<double>(*whole);
}

Counts counts(const Value& value) {
  Counts found;
  for (const Value& item : list(value)) found.push_back(number(item));
  return found;
}

Tensor tensor(const Value& value) {
  const List& parts = list(value);
  return to_tensor(Frame::copy(bytes(parts[2])), text(parts[0]), counts(parts[1]));
}

Origin origin(const Value& value) {
  if (const std::string* name = value.as<std::string>()) return {*name, false};
  return {bytes(value), true};
}

Error error(const Value& value) {
  const List& parts = list(value);
  const std::string& name = text(parts[0]);
  const ErrorKind kind = name == "run" ? ErrorKind::run : name == "bundle" ? ErrorKind::bundle : ErrorKind::internal;
  return {kind, text(parts[1]), text(parts[2]), text(parts[3]), text(parts[4])};
}

Received received(const List& parts) {
  Received found{origin(parts[4]), {}, decode(bytes(parts[6]), HEADER_LIMIT), {}};
  if (const std::string* user = parts[5].as<std::string>()) found.user = *user;
  for (const Value& frame : list(parts[7])) found.frames.push_back(Frame::copy(bytes(frame)));
  return found;
}

Event event(const List& parts) {
  const std::string& kind = text(parts[3]);
  if (kind == "loaded") return Loaded{number(parts[4])};
  if (kind == "load_failed") return LoadFailed{number(parts[4]), error(parts[5])};
  if (kind == "rows_read") return RowsRead{tensor(parts[4])};
  if (kind == "connected") return Connected{text(parts[4]), text(parts[5])};
  if (kind == "disconnected") return Disconnected{origin(parts[4])};
  if (kind == "rejected") return Rejected{text(parts[4])};
  if (kind == "unreadable") return Unreadable{origin(parts[4]), error(parts[5])};
  if (kind == "compute_failed") return ComputeFailed{error(parts[4])};
  if (kind == "received") return received(parts);
  if (kind == "sensors_read") {  // the readings lie in a message
    return SensorsRead{std::get<messages::Sensed>(decode(bytes(parts[4]), HEADER_LIMIT)).vitals.readings};
  }
  if (kind == "tick") return Tick{};
  Computed computed;
  for (const Value& value : list(parts[4])) computed.values.push_back(tensor(value));
  computed.seconds = real(parts[5]);
  return computed;
}

// -- answers

Value whole(std::uint64_t item) { return {Integer{item}}; }

Value of(const Origin& origin) { return origin.is_route ? Value{Bytes{origin.name}} : Value{origin.name}; }
Value of(const Frame& frame) { return {Bytes{std::string(frame.text())}}; }
Value of(const Command& command);
template <class T>
Value of(const std::vector<T>& items);
Value of(const std::string& item) { return {item}; }
Value of(std::uint64_t item) { return whole(item); }
Value of(const Tensor& tensor) { return {List{{std::string(tensor.type->name)}, of(tensor.shape), of(tensor.bytes)}}; }
template <class T>
Value of(const std::vector<T>& items) {
  List found;
  for (const T& item : items) found.push_back(of(item));
  return {std::move(found)};
}
Value of(const Dims& dims) {
  Object found;
  for (const auto& [name, size] : dims) found.set(name, whole(size));
  return {std::move(found)};
}
Value of(const Error& error) {
  const char* names[] = {"bundle", "run", "internal"};
  return {List{
      {std::string(names[static_cast<int>(error.kind)])}, {error.message}, {error.where}, {error.hint}, {error.cause}}};
}
Value of(const messages::Sampling& how) {
  return {List{{how.temperature}, whole(how.top_k), {how.top_p}, whole(how.seed), whole(how.likely)}};
}
Value named(const char* name) { return {std::string(name)}; }

Value of(const Command& command) {
  return std::visit(
      Match{
          [](const Send& item) {
            return Value{List{named("send"), of(item.origin), {Bytes{encode(item.message)}}, of(item.frames)}};
          },
          [](const Compute& item) {
            return Value{List{named("compute"),
                              {item.submodule},
                              whole(item.slot),
                              of(item.inputs),
                              of(item.dims),
                              {item.resets},
                              of(item.others)}};
          },
          [](const Draw& item) {
            List samplings{of(item.sampling)};
            for (const messages::Sampling& other : item.others) samplings.push_back(of(other));
            return Value{List{named("draw"), of(item.logits), of(item.positions), {std::move(samplings)}}};
          },
          [](const Load& item) {
            return Value{List{named("load"), whole(item.epoch), of(item.submodules)}};
          },
          [](const Release& item) {
            return Value{List{named("release"), of(item.submodules)}};
          },
          [](const Reset& item) {
            return Value{List{named("reset"), whole(item.slot), of(item.dims)}};
          },
          [](const ReadRows& item) {
            return Value{List{named("read"),
                              {item.submodule},
                              whole(item.slot),
                              {item.state},
                              whole(item.row),
                              whole(item.begin),
                              whole(item.end)}};
          },
          [](const WriteRows& item) {
            return Value{List{named("write"),
                              {item.submodule},
                              whole(item.slot),
                              {item.state},
                              whole(item.row),
                              whole(item.begin),
                              of(item.rows)}};
          },
          [](const Connect& item) {
            return Value{List{named("connect"), {item.peer}, {item.address}}};
          },
          [](const ReadSensors&) { return Value{List{named("sensors")}}; },
          [](const Announce&) { return Value{List{named("announce")}}; },
          [](const Log& item) {
            return Value{List{named("log"), {std::string(item.event)}, {item.fields}}};
          },
          [](const Leave& item) {
            return Value{List{named("leave"), item.error ? of(*item.error) : Value{}}};
          },
      },
      command);
}

/// Files as they are, without the checks of a reader: tests make roles that no compiler would.
RolePtr role(const List& parts) {
  auto build = std::make_shared<const build::Build>(build::read_build(read_json(text(parts[2]), "build")));
  return std::make_shared<const Role>(build, placement::read_placement(read_json(text(parts[3]), "placement")));
}

class Devices {
 public:
  Value answer(const List& parts) {
    const std::string& what = text(parts[0]);
    if (what == "new") return made(parts);
    if (what == "on") return on(parts);
    const messages::Sampling how{real(parts[2]), number(parts[3]), real(parts[4]), number(parts[5]), number(parts[7])};
    return of(drawn(Draw{tensor(parts[1]), how, counts(parts[6])}));
  }

 private:
  Value made(const List& parts) {
    Start start{number(parts[5]), number(parts[6]), real(parts[7]), real(parts[8]), real(parts[9]), {}, {}};
    for (const Value& one : list(parts[4])) {
      start.contingencies.push_back(placement::read_placement(read_json(text(one), "contingency")));
    }
    all_.push_back(std::make_unique<Device>(role(parts), start, real(parts[1])));
    return whole(all_.size() - 1);
  }
  Value on(const List& parts) {
    Device& device = *all_.at(number(parts[1]));
    const std::vector<Command> commands = device.on(event(parts), real(parts[2]));
    const Due due = device.deadline();
    return {List{due ? Value{*due} : Value{}, of(commands)}};
  }

  std::vector<std::unique_ptr<Device>> all_;
};

void write(MsgpackSink& sink, const Value& value) {
  if (const List* items = value.as<List>()) {
    sink.array(items->size());
    for (const Value& item : *items) write(sink, item);
  } else if (const Object* object = value.as<Object>()) {
    sink.map(object->size());
    for (const auto& [key, item] : *object) {
      sink.key(key);
      write(sink, item);
    }
  } else if (const Integer* number = value.as<Integer>()) {
    sink.whole(*number);
  } else if (const double* real = value.as<double>()) {
    sink.real(*real);
  } else if (const bool* truth = value.as<bool>()) {
    sink.truth(*truth);
  } else if (const std::string* text = value.as<std::string>()) {
    sink.text(*text);
  } else if (const Bytes* bytes = value.as<Bytes>()) {
    sink.bytes(*bytes);
  } else {
    sink.null();
  }
}

}  // namespace
}  // namespace partc::tests

int main() {
  using namespace partc;
  tests::Devices devices;
  while (const auto frame = tests::read_frame()) {
    const Value request = read_msgpack(*frame);
    MsgpackSink sink;
    try {
      tests::write(sink, devices.answer(*request.as<List>()));
    } catch (const Error& error) {
      sink.text(error.what());
    }
    tests::write_frame(sink.take());
  }
}
