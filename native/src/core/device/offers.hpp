// Rows that others fetch from this device, or keep copies of: the sending end of a transfer (…/core/device/offers.py).
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "core/device/requests.hpp"
#include "core/links/links.hpp"

namespace partc::core {

/// The rows that this device gives to others.
class Offers {
 public:
  Offers(RolePtr role, Requests& requests, Links& links) : role_(std::move(role)), requests_(requests), links_(links) {}

  /// Another placement is in force: copies are kept elsewhere.
  void adopt(RolePtr role);
  /// A request is over.
  void close(std::uint64_t request);
  /// A change is prepared: questions of earlier ones are void.
  void begin(std::uint64_t epoch);
  /// The change has come into force, or will not be: nobody may ask for rows any more.
  void end() { waiting_.clear(); }
  /// Answer a question, without rows where there are none; or keep it until its step is over.
  void wanted(const std::string& peer, const Origin& origin, const messages::Want& want, Actions& out);
  /// The rows of the oldest answer.
  void read(const Tensor& array, Actions& out);
  /// Whether somebody waits for steps to be over.
  bool has_waiting() const { return !waiting_.empty(); }
  /// Steps are over: answer those who waited for them.
  void stepped(Actions& out);
  /// Send the rows of steps that are over to the devices that keep copies.
  void mirror(Actions& out);

 private:
  /// Request and sub-module.
  using Key = std::pair<std::uint64_t, std::string>;

  void mirror(std::uint64_t number, const std::string& submodule, const std::string& keeper, Actions& out);
  void read_out(const Origin& way, const Request& request, const messages::Rows& header,
                std::optional<std::uint64_t> only, bool whole, Actions& out);
  bool has(const Request& request, const messages::Want& want) const;

  RolePtr role_;
  Requests& requests_;
  Links& links_;
  /// Device and what it asks for → its last question, where the step is not over.
  Map<std::pair<std::string, Key>, std::pair<Origin, messages::Want>> waiting_;
  /// Answers whose rows are being read.
  std::deque<std::pair<Origin, messages::Rows>> reading_;
  /// Steps whose rows the device has that keeps a copy.
  Map<Key, std::uint64_t> sent_;
};

}  // namespace partc::core
