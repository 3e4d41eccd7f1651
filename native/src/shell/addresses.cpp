#include "shell/addresses.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdlib>

#include "errors.hpp"

namespace partc::shell {
namespace {

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  if (in_addr four; inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  in6_addr six;
  return inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

}  // namespace

bool has_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  const std::string host = text.substr(0, colon), port = text.substr(colon + 1);
  const bool is_plain = host.find(':') == std::string::npos;
  if (!is_plain && !(host.front() == '[' && host.back() == ']')) return false;
  const bool is_number = !port.empty() && std::ranges::all_of(port, [](char c) { return '0' <= c && c <= '9'; });
  return is_number && std::strtoull(port.c_str(), nullptr, 10) < 65536;
}

void require_loopback(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = colon == std::string::npos ? "" : address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (is_loopback(host)) return;
  throw run_error("without encryption, nothing may leave this machine", address,
                  "--insecure is for loopback addresses (127.0.0.1) only; leave it out to encrypt");
}

}  // namespace partc::shell
