/** Commands of ZMTP 3.1 (RFC 23): a name behind its length, and data. */
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shell/zmtp/mechanism.hpp"

namespace partc::shell::zmtp {

/** A command; `data` points into its bytes. */
struct Command {
  std::string_view name, data;
};

/** None: the bytes are no command. */
std::optional<Command> parse_command(std::string_view bytes);
std::string command(std::string_view name, std::string_view data = {});

/** The properties that an end tells in its handshake. */
std::string metadata(Role role);
/** Whether these are properties of an end that may talk to one in this role. */
bool accepts(Role role, std::string_view metadata);

/** The number in the first `size` bytes, the highest byte first; and the inverse. */
std::uint64_t read_number(std::string_view bytes, std::size_t size);
void write_number(std::string& bytes, std::uint64_t number, std::size_t size);

}  // namespace partc::shell::zmtp
