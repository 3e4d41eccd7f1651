// build.json: what is read is written and read again the same, and every size can be reckoned or is refused.
#include "format/build.hpp"

#include "engines/entries.hpp"
#include "fuzz.hpp"

using namespace partc;

namespace {

/** The sizes of a step at its largest, as engines reckon them. */
void reckon(const build::Build& build) {
  build::most_chunks(build.model);
  for (const build::Submodule& submodule : build.submodules)
    for (const build::State& state : submodule.states)
      fuzz::accepted([&] { evaluate_shape(build::buffer_of(state).shape, build.dims); });
  if (!build.engine.library) return;
  fuzz::accepted([&] {
    engines::Entries entries(build);
    for (const build::Submodule& submodule : build.submodules) {
      bool is_known = true;
      for (const auto* names : {&submodule.inputs, &submodule.outputs})
        for (const std::string& name : *names) is_known = is_known && entries.types().contains(name);
      if (is_known) fuzz::accepted([&] { entries.of(submodule, build.dims); });
    }
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = fuzz::sealed(fuzz::text_of(data, size), "digest");
  build::Build build;
  if (!fuzz::accepted([&] { build = build::parse_build(text, "it"); })) return 0;
  build.digest.clear();  // keys that were left out are written, with what they mean then
  const std::string written = fuzz::sealed(canonical_json(build::write_build(build)), "digest");
  fuzz::require(compact_json({build::write_build(build::parse_build(written, "it"))}) == written);
  reckon(build);
  return 0;
}
