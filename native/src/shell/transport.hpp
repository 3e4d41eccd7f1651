/** Sockets, encryption, connections and the bytes of messages; what messages mean is the core's.

As `partc/runtime/shell/transport.py`: a device listens for its peers and answers each of them on the same connection, and
it connects to every device that it sends to. With keys, every connection is CURVE, and only the public keys of the peers
are admitted. Everything that can happen arrives through one `poll`.
*/
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/events.hpp"
#include "shell/keys.hpp"

namespace partc::shell {

/** A watched file is readable or at its end. */
struct Input {
  int descriptor;
};

using Event =
    std::variant<core::Received, core::Unreadable, core::Connected, core::Disconnected, core::Rejected, Input>;

/** All connections of one participant. Used by one thread at a time; destroying it closes all connections, and queued
messages get a moment to leave. */
class Transport {
 public:
  virtual ~Transport() = default;

  /** Wait for connections at HOST:PORT; the same with the port that was given or found (for port 0). Throws a run error:
  the address cannot be had, or it is not a loopback one while there are no keys. */
  virtual std::string listen(const std::string& address) = 0;
  /** Begin to connect to a device; `Connected` tells when it stands, and comes again after every break.

  A second call, with another address, is for a device that has moved. Throws a run error: the address is none, or not a
  loopback one while there are no keys.
  */
  virtual void connect(const std::string& name, const std::string& address) = 0;
  virtual const std::string& address_of(const std::string& name) const = 0;
  /** Report input on a file as well; and stop that. */
  virtual void watch(int descriptor) = 0;
  virtual void unwatch(int descriptor) = 0;

  /** Queue a message without waiting; false when there is no connection to take it. */
  virtual bool send(const core::Origin& origin, const messages::AnyMessage& message, const Frames& frames = {}) = 0;
  /** Whether the rest of a message leaves only when `poll` is called again. */
  virtual bool has_unsent() const = 0;
  /** The events since the last call, in order for each connection; after `timeout_s` at the latest (none: never).

  More messages may lie ready than it returns; there may be none where a stranger has left.
  */
  virtual std::vector<Event> poll(std::optional<double> timeout_s) = 0;

  /** Connections to us so far that ended before they had shown a key, or that spoke another protocol. */
  std::uint64_t strangers() const { return strangers_; }

 protected:
  std::uint64_t strangers_ = 0;
};

/** The address of a device to connect to is none. */
Error no_address(const std::string& name, const std::string& address);

/** A transport without connections.

`keys`: ours and our peers'; none leaves everything in the clear (loopback only). Larger frames than `frame_limit` are
refused before memory is taken for them, longer headers than `header_limit` are not read (bytes). A connection whose other
end is dead for 1.5 times `patience_s` is closed. It speaks ZMTP itself; for
tests and measurements, `zmq` in the environment variable PARTC_TRANSPORT chooses libzmq, where it was compiled in.
*/
std::unique_ptr<Transport> make_transport(std::optional<Keys> keys, std::uint64_t frame_limit, double patience_s,
                                          std::uint64_t header_limit);

}  // namespace partc::shell
