#include "format/codec.hpp"

#include "format/complaints.hpp"
#include "format/facts.gen.hpp"
#include "format/msgpack.hpp"

namespace partc {
namespace {

/// Whether a header says that it is of another version of the wire.
bool is_of_another_version(const Value& value) {
  const Object* object = value.as<Object>();
  const Value* version = object == nullptr ? nullptr : object->find("v");
  return version != nullptr && *version != Value{Integer{VERSION}};
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
    if (is_of_another_version(value)) {
      throw refused("another wire version than " + std::to_string(VERSION), "",
                    "install the same version of partc on all devices");
    }
    throw refused("a message that cannot be read: " + error.message);
  }
}

}  // namespace partc
