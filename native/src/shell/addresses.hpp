/** Addresses, HOST:PORT (`partc/runtime/shell/addresses.py`). */
#pragma once

#include <string>

namespace partc::shell {

/** Whether this is HOST:PORT; an IPv6 HOST stands in brackets. */
bool has_port(const std::string& text);

/** Refuse an address that another machine could reach; throws a run error. */
void require_loopback(const std::string& address);

}  // namespace partc::shell
