/** What fuzz targets share. Each file of this folder is a target: it feeds bytes to one reader and holds what comes out against the reader's promise. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "errors.hpp"
#include "format/digests.hpp"
#include "format/json.hpp"

/** The one function of a target; libFuzzer calls it, or replay.cpp. */
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace partc::fuzz {

/** Ends the process where a promise is broken. */
inline void require(bool holds) {
  if (!holds) std::abort();
}

/** Calls an act that may refuse its input; whether it did not. A bug, or an exception of another kind, ends the process. */
template <class Act>
bool accepted(Act act) {
  try {
    act();
    return true;
  } catch (const Error& error) {
    require(error.kind != ErrorKind::internal);
    return false;
  }
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/** JSON whose digest is right where it was empty: no input would get past it by chance.

`key` is the digest's; keys of `outside` do not count. Other texts stay as they are.
*/
inline std::string sealed(std::string_view text, const std::string& key, const std::string& outside = "") {
  try {
    Object raw = read_json_object(text, "it");
    const Value* digest = raw.find(key);
    if (digest == nullptr || *digest != Value{std::string()}) return std::string(text);
    Object counted = raw;
    counted.erase(key);
    counted.erase(outside);
    raw.set(key, {data_digest({std::move(counted)})});
    return compact_json({std::move(raw)});
  } catch (const Error&) {
    return std::string(text);
  }
}

}  // namespace partc::fuzz
