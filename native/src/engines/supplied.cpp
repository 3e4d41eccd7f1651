/** What libraries of kernels may leave open: `targets/tvm/link.py` lets no other names through. */
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

#include "engines/elf_loader.hpp"

namespace partc::engines {
namespace {

template <class Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

/** Of functions that C++ overloads: the one of that type. */
using One = double (*)(double);
using Two = double (*)(double, double);
using OneFloat = float (*)(float);
using TwoFloat = float (*)(float, float);

}  // namespace

// clang-format off
#define PARTC_ONE(name) {#name, address(One{::name})}, {#name "f", address(OneFloat{::name##f})}
#define PARTC_TWO(name) {#name, address(Two{::name})}, {#name "f", address(TwoFloat{::name##f})}

void* supplied(std::string_view symbol) {
  static const std::map<std::string_view, void*> table = {
      {"memcpy", address(&memcpy)},
      {"memmove", address(&memmove)},
      {"memset", address(&memset)},
      {"posix_memalign", address(&posix_memalign)},
      {"free", address(&free)},
      {"syscall", address(&syscall)},
      PARTC_ONE(exp), PARTC_ONE(exp2), PARTC_ONE(exp10), PARTC_ONE(expm1), PARTC_ONE(log), PARTC_ONE(log2), PARTC_ONE(log10),
      PARTC_ONE(log1p), PARTC_ONE(sqrt), PARTC_ONE(cbrt), PARTC_ONE(sin), PARTC_ONE(cos), PARTC_ONE(tan),
      PARTC_ONE(asin), PARTC_ONE(acos), PARTC_ONE(atan), PARTC_ONE(sinh), PARTC_ONE(cosh), PARTC_ONE(tanh),
      PARTC_ONE(asinh), PARTC_ONE(acosh), PARTC_ONE(atanh), PARTC_ONE(erf), PARTC_ONE(erfc), PARTC_ONE(fabs),
      PARTC_ONE(floor), PARTC_ONE(ceil), PARTC_ONE(round), PARTC_ONE(rint), PARTC_ONE(nearbyint),
      PARTC_ONE(trunc), PARTC_TWO(pow), PARTC_TWO(hypot), PARTC_TWO(atan2), PARTC_TWO(fmod), PARTC_TWO(fmax),
      PARTC_TWO(fmin), PARTC_TWO(copysign), PARTC_TWO(nextafter),
      {"fma", address<double(double, double, double)>(::fma)},
      {"fmaf", address<float(float, float, float)>(::fmaf)},
      {"ldexp", address<double(double, int)>(::ldexp)},
      {"ldexpf", address<float(float, int)>(::ldexpf)},
      {"sincos", address(&::sincos)},
      {"sincosf", address(&::sincosf)},
  };
  // clang-format on
  const auto found = table.find(symbol);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace partc::engines
