#include "shell/transport.hpp"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "errors.hpp"
#include "format/text.hpp"
#ifdef PARTC_HAS_ZMQ
#include "shell/zmq/transport.hpp"
#endif
#include "shell/zmtp/transport.hpp"

namespace partc::shell {

Error no_address(const std::string& name, const std::string& address) {
  return run_error(in_quotes(address) + " is not an address", name,
                   "HOST:PORT is expected, as in 192.0.2.7:5555 or [2001:db8::7]:5555");
}

std::unique_ptr<Transport> make_transport(std::optional<Keys> keys, std::uint64_t frame_limit, double patience_s,
                                          std::uint64_t header_limit) {
#ifdef PARTC_HAS_ZMQ
  const char* chosen = std::getenv("PARTC_TRANSPORT");
  if (chosen && std::string_view(chosen) == "zmq")
    return std::make_unique<ZmqTransport>(std::move(keys), frame_limit, patience_s, header_limit);
#endif
  return std::make_unique<ZmtpTransport>(std::move(keys), frame_limit, patience_s, header_limit);
}

}  // namespace partc::shell
