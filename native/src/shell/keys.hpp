/** The CURVE keys of a device, which decide who may connect to whom (`partc/runtime/shell/keys.py`). */
#pragma once

#include <map>
#include <string>

namespace partc::shell {

/** One participant's own pair and the public keys of those that it talks to, all as Z85 text. */
struct Keys {
  std::string public_key, secret_key;
  std::map<std::string, std::string> peers;

  /** The peer that a public key belongs to; empty where it is nobody's. */
  std::string name_of(const std::string& key) const;
};

/** The keys of one device. Throws a bundle error: they are missing, damaged, or readable for other users. */
Keys load_device_keys(const std::string& bundle);

}  // namespace partc::shell
