#include "core/device/script.hpp"

#include <algorithm>
#include <map>

namespace partc::core {

Script::Script(RolePtr of_role) : role(std::move(of_role)) {
  std::uint64_t most = 0;
  for (const auto& [phase, items] : role->programs) {
    std::vector<Line> lines;
    std::map<std::string, std::size_t> last;
    std::uint64_t count = 0;
    for (const program::Instruction& item : items) {
      lines.push_back({item, program::awaits(item), {}});
      count += lines.back().awaits.size();
      for (const std::string& name : program::reads(item)) last[name] = lines.size() - 1;
    }
    for (const auto& [name, at] : last) lines[at].dead.insert(name);
    programs.set(phase, std::move(lines));
    most = std::max(most, count);
  }
  most_steps = MOST_FORCED + build::most_chunks(role->model());
  most_early = most_steps * most;
}

}  // namespace partc::core
