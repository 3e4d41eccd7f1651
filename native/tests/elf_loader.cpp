/** elf_loader call FILE | supplied NAME… | mutants FILE COUNT: what tests/native/test_elf_loader.py asks of the loader. */
#include "engines/elf_loader.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "errors.hpp"

using partc::engines::Code;

namespace {

std::vector<char> content(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Code open(const std::vector<char>& file, const char* name) { return Code(std::as_bytes(std::span(file)), name); }

/** Prints what the functions of the test's library give. */
void call(const char* path) {
  const Code code = open(content(path), path);
  const auto function = [&](const char* name) { return reinterpret_cast<double (*)(double)>(code.find(name)); };
  for (const char* name : {"cosine", "through_a_pointer", "through_a_table", "count", "count", "weak_is_null"})
    std::printf("%.17g\n", function(name)(3.0));
  std::printf("%d %d\n", code.find("absent") == nullptr, code.find("cosine", 1 << 30) == nullptr);
}

/** Loads copies with some bytes changed; prints how many were taken and how many were refused. */
void mutants(const char* path, int count) {
  const std::vector<char> whole = content(path);
  std::vector<std::size_t> places;  // most of a small library is gaps
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (whole[i]) places.push_back(i);
  std::mt19937 random(1);
  int taken = 0, refused = 0;
  for (int round = 0; round < count; ++round) {
    std::vector<char> file = whole;
    for (unsigned left = 1 + random() % 4; left; --left)
      file[places[random() % places.size()]] = static_cast<char>(random());
    if (random() % 16 == 0) file.resize(random() % file.size());
    try {
      open(file, path);
      ++taken;
    } catch (const partc::Error&) {
      ++refused;
    }
  }
  std::printf("%d %d\n", taken, refused);
}

}  // namespace

int main(int count, char** words) try {
  const std::string mode = count > 2 ? words[1] : "";
  if (mode == "call") call(words[2]);
  if (mode == "mutants" && count > 3) mutants(words[2], std::atoi(words[3]));
  for (int i = 2; mode == "supplied" && i < count; ++i)
    if (!partc::engines::supplied(words[i])) std::printf("%s\n", words[i]);
} catch (const partc::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();
}
