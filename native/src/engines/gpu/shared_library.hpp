/** Libraries of the system, opened by name, and what this runner calls of them. */
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>

#include "engines/gpu/driver.hpp"

namespace partc::engines::gpu {

/** A library that stays open until the process ends: drivers keep threads of their own. */
class SharedLibrary {
 public:
  /** Opens the first of these names that there is; throws a `DriverError` with the text `missing` where there is none. */
  SharedLibrary(std::initializer_list<const char*> names, const char* missing) {
    for (const char* name : names)
      if (!handle_) handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle_) throw DriverError{missing};
  }
  void* find(const char* name) const {
    if (void* address = dlsym(handle_, name)) return address;
    throw DriverError{std::string(name) + " is missing: the driver is too old"};
  }

 private:
  void* handle_ = nullptr;
};

/** A function of a library; its name stands in errors. */
template <class Type>
class Function;

template <class Result, class... Arguments>
class Function<Result(Arguments...)> {
 public:
  Function(const SharedLibrary& library, const char* name)
      : name_(name), address_(reinterpret_cast<Result (*)(Arguments...)>(library.find(name))) {}

  const char* name() const { return name_; }
  Result operator()(Arguments... arguments) const { return address_(arguments...); }

 private:
  const char* name_;
  Result (*address_)(Arguments...);
};

}  // namespace partc::engines::gpu
