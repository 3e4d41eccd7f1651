/** Addresses, HOST:PORT (`partc/runtime/shell/addresses.py`). */
#pragma once

#include <map>
#include <set>
#include <string>

#include "errors.hpp"
#include "format/role.hpp"
#include "shell/settings.hpp"

namespace partc::shell {

/** The address that this device binds. Throws a run error: neither the options nor the placement say where. */
std::string listen_address(const Role& role, const Settings& settings);

/** Device → HOST:PORT: those of the placement, and `given` over them.

Throws a run error: an address is missing of the source or a device that this one sends to, or is one of a device that
the build does not have.
*/
std::map<std::string, std::string> known_addresses(const Role& role, const std::map<std::string, std::string>& given);

/** The devices that this one connects to at once: those that it sends to, and the source. */
std::set<std::string> first_peers(const Role& role);

/** HOST:PORT at which a peer and its neighbours can reach this device; empty where the system does not tell.

A peer on this machine is reached over loopback, where nobody else reaches this device. `peer`: its HOST:PORT;
`listening`: HOST:PORT that is bound; `advertised`: HOST or HOST:PORT, which the user gave, or empty.
*/
std::string address_towards(const std::string& peer, const std::string& listening, const std::string& advertised);

/** The error of an address that cannot be bound; `number` is the system's, `why` its words. */
Error cannot_listen(int number, const std::string& why, const std::string& address);

/** Whether this is HOST:PORT; an IPv6 HOST stands in brackets. */
bool has_port(const std::string& text);

/** 1 where the host of HOST:PORT is an IPv6 address, else 0, as options of sockets take it. */
int is_six(const std::string& address);

/** Refuse an address that another machine could reach; throws a run error. */
void require_loopback(const std::string& address);

}  // namespace partc::shell
