#include "shell/zmtp/commands.hpp"

#include <strings.h>

#include <algorithm>
#include <array>

namespace partc::shell::zmtp {
namespace {

constexpr std::string_view kSocketType = "Socket-Type";

void write_property(std::string& bytes, std::string_view name, std::string_view value) {
  write_number(bytes, name.size(), 1);
  bytes += name;
  write_number(bytes, value.size(), 4);
  bytes += value;
}

/** Cut bytes off the front, as many as a number before them says; none: there are fewer. */
std::optional<std::string_view> cut(std::string_view& bytes, std::size_t digits) {
  if (bytes.size() < digits) return {};
  const std::uint64_t size = read_number(bytes, digits);
  bytes.remove_prefix(digits);
  if (bytes.size() < size) return {};
  const std::string_view found = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return found;
}

bool is_same(std::string_view one, std::string_view other) {
  return one.size() == other.size() && strncasecmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace

std::uint64_t read_number(std::string_view bytes, std::size_t size) {
  std::uint64_t number = 0;
  for (const char byte : bytes.substr(0, size)) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

void write_number(std::string& bytes, std::uint64_t number, std::size_t size) {
  for (std::size_t i = size; i-- > 0;) bytes += static_cast<char>(number >> 8 * i);
}

void write_head(std::string& wire, unsigned char flags, std::uint64_t size) {
  const bool is_long = size > 255;
  wire += static_cast<char>(is_long ? flags | kLong : flags);
  write_number(wire, size, is_long ? 8 : 1);
}

std::optional<Command> parse_command(std::string_view bytes) {
  const auto name = cut(bytes, 1);
  if (!name || name->empty()) return {};
  return Command{*name, bytes};
}

std::string command(std::string_view name, std::string_view data) {
  std::string bytes(1, static_cast<char>(name.size()));
  return bytes.append(name).append(data);
}

std::string metadata(Role role) {
  std::string bytes;
  write_property(bytes, kSocketType, role == Role::client ? "DEALER" : "ROUTER");
  write_property(bytes, "Identity", "");
  return bytes;
}

bool accepts(Role role, std::string_view metadata) {
  // Combinations of RFC 28.
  constexpr std::array<std::string_view, 3> clients = {"DEALER", "REQ", "ROUTER"},
                                            servers = {"ROUTER", "REP", "DEALER"};
  const auto& others = role == Role::client ? servers : clients;
  bool is_known = false;
  while (!metadata.empty()) {
    const auto name = cut(metadata, 1);
    const auto value = name ? cut(metadata, 4) : std::nullopt;
    if (!value || name->empty()) return false;
    if (!is_same(*name, kSocketType)) continue;
    if (std::ranges::find(others, *value) == others.end()) return false;
    is_known = true;
  }
  return is_known;
}

}  // namespace partc::shell::zmtp
