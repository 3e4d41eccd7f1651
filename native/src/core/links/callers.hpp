// Who is at the other end of each connection to a device, by its greeting (…/core/links/callers.py).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/actions.hpp"

namespace partc::core {

inline constexpr const char* KEYS_HINT = "partc keys BUILD makes new keys; copy each device's keys folder to it again";

/// A greeting, and the event that brought it.
struct Greeting {
  Received event;
  messages::Hello hello;
};

/// The connections to this device.
class Callers {
 public:
  /// The devices that are connected → where messages to them go.
  Map<std::string, Origin> devices() const;
  /// Who is at the other end of a connection; none: nobody who has greeted.
  std::optional<std::string> name_of(const Origin& origin) const;
  /// The last connection of a device, and its session; null: it never greeted.
  const std::pair<Origin, std::uint64_t>* last(const std::string& device) const { return last_.find(device); }
  /// Note a greeting that fits.
  void came(const Received& event, const messages::Hello& hello, Actions& out);
  /// A connection is closed; who was at its other end.
  std::optional<std::string> gone(const Origin& origin);
  /// The greetings of a device on connections whose end is not noticed.
  std::vector<Greeting> greeted_before(const std::string& device) const;
  /// The greeting that a message is, or an earlier one that it brings back: a sign of life that was asked for.
  std::optional<Greeting> greeting(const Received& event) const;

 private:
  void supersede(const Received& event, const messages::Hello& hello, Actions& out);

  /// Route of a connection → who is at its other end.
  Map<Origin, std::string> names_;
  /// Route of a connection that stands → the last greeting of a device on it, superseded ones included.
  Map<Origin, Greeting> greetings_;
  /// Device → its last connection, and its session.
  Map<std::string, std::pair<Origin, std::uint64_t>> last_;
};

/// Hold a greeting against key, build and placement. Throws Error: it does not fit.
void check_greeting(const Role& role, const messages::Hello& hello, const std::optional<std::string>& user);

}  // namespace partc::core
