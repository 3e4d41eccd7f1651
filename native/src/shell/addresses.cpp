#include "shell/addresses.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <vector>

#include "errors.hpp"
#include "format/text.hpp"

namespace partc::shell {
namespace {

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  if (in_addr four; inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  in6_addr six;
  return inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

/** HOST:PORT in two; the brackets of an IPv6 HOST are off. */
std::pair<std::string, std::string> parts_of(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {"", address};
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, address.substr(colon + 1)};
}

/** Whether a host stands for all interfaces of the machine. */
bool is_every(const std::string& host) {
  if (host == "*") return true;
  if (in_addr four; inet_pton(AF_INET, host.c_str(), &four) == 1) return four.s_addr == INADDR_ANY;
  in6_addr six;
  return inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_UNSPECIFIED(&six);
}

/** The address of the interface from which a place is reached, or empty: a UDP socket that connects sends nothing. */
std::string interface_towards(const addrinfo& place) {
  const int probe = socket(place.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return "";
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  char host[NI_MAXHOST] = "";
  const bool is_found =
      connect(probe, place.ai_addr, place.ai_addrlen) == 0 &&
      getsockname(probe, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
      getnameinfo(reinterpret_cast<sockaddr*>(&own), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0;
  close(probe);
  return is_found ? host : "";
}

std::string local_host(const std::string& peer) {
  const auto [host, port] = parts_of(peer);
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(host.c_str(), port.c_str(), &wanted, &found)) return "";
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  return interface_towards(*found);
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

int is_six(const std::string& address) { return address.starts_with('['); }

void require_loopback(const std::string& address) {
  if (is_loopback(parts_of(address).first)) return;
  throw run_error("without encryption, nothing may leave this machine", address,
                  "--insecure is for loopback addresses (127.0.0.1) only; leave it out to encrypt");
}

Error cannot_listen(int number, const std::string& why, const std::string& address) {
  std::string hint = "choose another with --listen HOST:PORT";
  if (number == EADDRINUSE) hint += ", or stop the process that has it";
  if (number == EADDRNOTAVAIL || number == ENODEV) {
    hint = "give an address of this machine with --listen HOST:PORT; 0.0.0.0 stands for all that it has";
  }
  if (number == EACCES) {
    hint = "ports below 1024 need rights of their own: choose a higher one with --listen HOST:PORT";
  }
  return run_error("cannot listen: " + why, address, hint);
}

std::string listen_address(const Role& role, const Settings& settings) {
  if (!settings.listen.empty()) return settings.listen;
  if (const auto& address = role.placement.addresses.at(role.device()); address && !address->empty()) return *address;
  if (settings.stdio) return "127.0.0.1:0";
  throw run_error("where shall this device listen?", role.device(), "--listen HOST:PORT, or `address` in devices.yaml");
}

std::map<std::string, std::string> known_addresses(const Role& role, const std::map<std::string, std::string>& given) {
  std::map<std::string, std::string> known;
  std::vector<std::string> names;
  for (const auto& [name, address] : role.placement.addresses) {
    names.push_back(name);
    if (address && !address->empty()) known[name] = *address;
  }
  for (const auto& [name, address] : given) {
    if (!role.placement.addresses.contains(name))
      throw run_error("the build has no device " + in_quotes(name), "--peer", joined(names, ", "));
    known[name] = address;
  }
  for (const std::string& name : first_peers(role)) {
    if (known.contains(name)) continue;
    throw run_error("the address of " + name + " is not known", role.device(),
                    "--peer " + name + "=HOST:PORT, or `address` in devices.yaml");
  }
  return known;
}

std::set<std::string> first_peers(const Role& role) {
  std::set<std::string> found(role.send.begin(), role.send.end());
  if (!role.is_source()) found.insert(role.source());
  return found;
}

std::string address_towards(const std::string& peer, const std::string& listening, const std::string& advertised) {
  const auto [host, port] = parts_of(listening);
  if (!advertised.empty()) return has_port(advertised) ? advertised : advertised + ":" + port;
  if (!is_every(host)) return listening;
  const std::string local = local_host(peer);
  if (local.empty() || is_loopback(local)) return "";
  return (local.find(':') == std::string::npos ? local : "[" + local + "]") + ":" + port;
}

}  // namespace partc::shell
