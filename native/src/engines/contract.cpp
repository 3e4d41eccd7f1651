#include "engines/contract.hpp"

#include "engines/new_tensor.hpp"
#include "engines/null.hpp"
#ifdef PARTC_GPU
#include "engines/gpu/engine.hpp"
#endif
#ifdef PARTC_ORT
#include "engines/ort.hpp"
#endif
#include "engines/plan.hpp"
#include "errors.hpp"
#include "format/text.hpp"

namespace partc::engines {

std::unique_ptr<Engine> make_engine(const BuildPtr& build, const std::string& folder) {
  const std::string& kind = build->engine.kind;
  if (kind == "plan") return std::make_unique<PlanEngine>(build, folder);
  if (kind == "null") return std::make_unique<NullEngine>(build);
#ifdef PARTC_ORT
  if (kind == "ort") return std::make_unique<OrtEngine>(build, folder);
#else
  if (kind == "ort") {
    throw bundle_error("this runner is one static file, which cannot load onnxruntime", "engine.kind",
                       "compile with `target: tvm`, or set `runner: python` for this device");
  }
#endif
#ifdef PARTC_GPU
  if (kind == "gpu") return std::make_unique<gpu::GpuEngine>(build, folder);
#else
  if (kind == "gpu") {
    throw bundle_error("this runner is one static file, which cannot load the driver of a GPU", "engine.kind",
                       "set `runner: python` for this device, or take a runner for glibc, as `make native` builds it");
  }
#endif
  throw bundle_error("no engine " + in_quotes(kind), "engine.kind", "this runner has ort, plan, gpu, null");
}

const build::Submodule& submodule_named(const std::string& name, const build::Build& build) {
  std::vector<std::string> known;
  for (const build::Submodule& module : build.submodules) {
    if (module.name == name) return module;
    known.push_back(module.name);
  }
  throw bundle_error("there is no sub-module " + in_quotes(name), "", "this device has " + joined(known, ", "));
}

Error not_loaded(const std::string& name) { return run_error(in_quotes(name) + " is not loaded", "", "", "bug"); }

void check_input(const std::string& name, const Tensor& array, const ElementType& type, const Shape& shape) {
  if (array.type->held == type.held && array.shape == shape) return;
  throw run_error(in_quotes(name) + " is " + type_text(array.type->name, array.shape) + ", not " +
                      type_text(type.name, shape),
                  "", "", "bug");
}

}  // namespace partc::engines
