// placement.json: what is read is written and read again the same; with a build behind it, the role of that device.
#include "format/placement.hpp"

#include <memory>

#include "format/role.hpp"
#include "fuzz.hpp"

using namespace partc;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = fuzz::text_of(data, size);
  const std::size_t end = std::min(input.find('\0'), size);  // a build stands behind it, or none
  placement::Placement placement;
  const std::string text = fuzz::sealed(input.substr(0, end), "placement_id", "addresses");
  if (!fuzz::accepted([&] { placement = placement::parse_placement(text, "it"); })) return 0;
  const std::string written = placement::placement_text(placement);
  fuzz::require(placement::placement_text(placement::parse_placement(written, "it")) == written);
  if (end == size) return 0;
  const std::string behind = fuzz::sealed(input.substr(end + 1), "digest");
  fuzz::accepted([&] {
    const auto build = std::make_shared<const build::Build>(build::parse_build(behind, "it"));
    const Role role(build, placement);
    check_role(role, "it");
    fuzz::require(role.plan_digest().data.size() == 32 && role.placement_digest().data.size() == 32);
  });
  return 0;
}
