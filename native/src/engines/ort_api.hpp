/** onnxruntime's C API, from a library that is loaded at run time.

The API is a table of functions to which releases only append, so a function is a place in it and a signature. Declared
here is what the engine calls; `tests/native/test_ort.py` holds it against the library that Python has.
*/
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

namespace partc::engines::ort {

struct Allocator;
struct ArenaCfg;
struct Env;
struct IoBinding;
struct MemoryInfo;
struct RunOptions;
struct Session;
struct SessionOptions;
struct Status;
struct Value;

/** The version of the table that has all places below: that of onnxruntime 1.18. */
inline constexpr std::uint32_t kTableVersion = 18;

/** What the library says went wrong. */
struct Failure {
  int code;
  std::string message;
  /** Both, as its Python package words them. */
  std::string text() const;
};

/** The table, of the library that the first call loads.

That is the file that the environment names in PARTC_ONNXRUNTIME; else the latest `libonnxruntime.so*` beside this
program; else what the system has under that name. Throws a bundle error: there is none, or it is too old.
*/
const void* const* table();
/** Of the library: `1.31.1`. */
std::string version();
/** Throws Failure where a call returned a status. */
void check(Status* status);

/** A function of the table; those that return a status throw Failure instead. */
template <std::size_t Place, class Signature>
struct Function;
template <std::size_t Place, class Result, class... Arguments>
struct Function<Place, Result(Arguments...)> {
  auto operator()(Arguments... arguments) const {
    const auto call = reinterpret_cast<Result (*)(Arguments...)>(const_cast<void*>(table()[Place]));
    if constexpr (std::is_same_v<Result, Status*>) {
      check(call(arguments...));
    } else {
      return call(arguments...);
    }
  }
};

inline constexpr Function<1, int(const Status*)> get_error_code;
inline constexpr Function<2, const char*(const Status*)> get_error_message;
inline constexpr Function<3, Status*(int level, const char* name, Env**)> create_env;
inline constexpr Function<7, Status*(Env*, const char* path, const SessionOptions*, Session**)> create_session;
inline constexpr Function<10, Status*(SessionOptions**)> create_session_options;
inline constexpr Function<17, Status*(SessionOptions*)> disable_mem_pattern;
inline constexpr Function<22, Status*(SessionOptions*, int level)> set_session_log_severity_level;
inline constexpr Function<24, Status*(SessionOptions*, int threads)> set_intra_op_num_threads;
inline constexpr Function<30, Status*(const Session*, std::size_t*)> session_get_input_count;
inline constexpr Function<31, Status*(const Session*, std::size_t*)> session_get_output_count;
inline constexpr Function<36, Status*(const Session*, std::size_t, Allocator*, char**)> session_get_input_name;
inline constexpr Function<37, Status*(const Session*, std::size_t, Allocator*, char**)> session_get_output_name;
inline constexpr Function<49, Status*(const MemoryInfo*, void* data, std::size_t bytes, const std::int64_t* shape,
                                      std::size_t rank, int type, Value**)>
    create_tensor_with_data;
inline constexpr Function<68, Status*(const char* name, int allocator, int id, int kind, MemoryInfo**)>
    create_memory_info;
inline constexpr Function<76, Status*(Allocator*, void*)> allocator_free;
inline constexpr Function<78, Status*(Allocator**)> get_allocator_with_default_options;
inline constexpr Function<93, void(Status*)> release_status;
inline constexpr Function<94, void(MemoryInfo*)> release_memory_info;
inline constexpr Function<95, void(Session*)> release_session;
inline constexpr Function<96, void(Value*)> release_value;
inline constexpr Function<100, void(SessionOptions*)> release_session_options;
inline constexpr Function<130, Status*(SessionOptions*, const char* key, const char* value)> add_session_config_entry;
inline constexpr Function<133, Status*(Session*, const RunOptions*, const IoBinding*)> run_with_binding;
inline constexpr Function<134, Status*(Session*, IoBinding**)> create_io_binding;
inline constexpr Function<135, void(IoBinding*)> release_io_binding;
inline constexpr Function<136, Status*(IoBinding*, const char* name, const Value*)> bind_input;
inline constexpr Function<137, Status*(IoBinding*, const char* name, const Value*)> bind_output;
inline constexpr Function<144, Status*(Env*, const MemoryInfo*, const ArenaCfg*)> create_and_register_allocator;
inline constexpr Function<157, void(ArenaCfg*)> release_arena_cfg;
inline constexpr Function<164, Status*(const char* const* keys, const std::size_t* values, std::size_t, ArenaCfg**)>
    create_arena_cfg;
inline constexpr Function<279, Status*(SessionOptions*, const char* const* names, char* const* contents,
                                       const std::size_t* bytes, std::size_t)>
    add_external_initializers_from_files_in_memory;

/** Something of the library, released with its owner. */
template <auto release>
struct Release {
  template <class T>
  void operator()(T* held) const {
    release(held);
  }
};
using ArenaCfgPtr = std::unique_ptr<ArenaCfg, Release<release_arena_cfg>>;
using IoBindingPtr = std::unique_ptr<IoBinding, Release<release_io_binding>>;
using MemoryInfoPtr = std::unique_ptr<MemoryInfo, Release<release_memory_info>>;
using SessionOptionsPtr = std::unique_ptr<SessionOptions, Release<release_session_options>>;
using SessionPtr = std::unique_ptr<Session, Release<release_session>>;
using ValuePtr = std::unique_ptr<Value, Release<release_value>>;

/** What a function makes whose last argument tells where to put it. */
template <class Pointer, class Make, class... Arguments>
Pointer made(const Make& make, Arguments... arguments) {
  typename Pointer::pointer found = nullptr;
  make(arguments..., &found);
  return Pointer(found);
}

}  // namespace partc::engines::ort
