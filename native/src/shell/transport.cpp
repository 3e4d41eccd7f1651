#include "shell/transport.hpp"

#include <utility>

#include "shell/zmq_transport.hpp"

namespace partc::shell {

std::unique_ptr<Transport> make_transport(std::optional<Keys> keys, std::uint64_t frame_limit, double patience_s,
                                          std::uint64_t header_limit) {
  return std::make_unique<ZmqTransport>(std::move(keys), frame_limit, patience_s, header_limit);
}

}  // namespace partc::shell
