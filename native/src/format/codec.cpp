#include "format/codec.hpp"

#include <optional>

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/msgpack.hpp"

namespace partc {
namespace {

/// The version of the wire that a header says it is of, where it is another one.
std::optional<std::string> other_version(const Value& value) {
  const Object* object = value.as<Object>();
  const Value* version = object == nullptr ? nullptr : object->find("v");
  if (version == nullptr || *version == Value{Integer{VERSION}}) return {};
  const Integer* number = version->as<Integer>();
  return number ? std::to_string(static_cast<std::int64_t>(*number)) : std::string(version->kind());
}

}  // namespace

std::string encode(const messages::AnyMessage& message) { return messages::write_message(message); }

messages::AnyMessage decode(std::string_view frame, std::size_t limit) {
  if (frame.size() > limit) {
    throw refused("a header of " + std::to_string(frame.size()) + " bytes, at most " + std::to_string(limit) +
                  " are allowed");
  }
  Value value;
  try {
    value = read_msgpack(frame);
    return messages::read_message(value);
  } catch (const Error& error) {
    if (const auto version = other_version(value)) {
      throw refused("wire version " + *version + ", this end speaks " + std::to_string(VERSION), "",
                    "install the same version of partc on all devices");
    }
    throw refused("a message that cannot be read: " + error.message);
  }
}

}  // namespace partc
