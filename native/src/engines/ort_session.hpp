/** Sessions of onnxruntime: threads, weights where they are mapped, and how much memory activations take.

`partc/runtime/engines/ort_session.py` says what each setting is for. All but one are the same here: the C API does not
let every tensor keep a block of its own, so that activations take more of the arena (a prompt of 512 tokens by a Llama
of 110M parameters: 9 MB more).
*/
#pragma once

#include <string>

#include "engines/mapped_files.hpp"
#include "engines/ort_api.hpp"
#include "format/build.hpp"

namespace partc::engines {

/** A session, and the mapped files that it reads its weights from, which it does not hold. */
struct Session {
  MappedFiles files;
  ort::SessionPtr inner;
};

/** Make sure that onnxruntime is there and has the provider; throws a bundle error that says what to install. */
void check_provider(const build::EngineSpec& engine);

/** Read a sub-module of the device's folder.

Throws a bundle error: a file is missing, or onnxruntime cannot read it.
*/
Session load_session(const build::EngineSpec& engine, const std::string& folder, const build::Submodule& module);

}  // namespace partc::engines
