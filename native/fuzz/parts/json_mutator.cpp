/** Mutants of JSON that are JSON again: parts of a document that are exchanged, left out, repeated or replaced, and lines
and words of programs, so that mutants get past the reader and reach the rules. One in four is a mutant of bytes. */
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "errors.hpp"
#include "format/json.hpp"
#include "format/text.hpp"
#include "fuzz.hpp"
#include "parts/values.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

using namespace partc;

namespace {

using Random = std::minstd_rand;
using Texts = std::vector<std::string>;

std::size_t below(Random& random, std::size_t count) { return count ? random() % count : 0; }

/** Texts between separators, which stay: joined they are the whole again. */
Texts pieces(const std::string& text, std::string_view separators) {
  Texts found;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = text.find_first_of(separators, at);
    end = std::min(end == at ? at + 1 : end, text.size());
    found.push_back(text.substr(at, end - at));
    at = end;
  }
  return found;
}

void change(Texts& items, const Texts& others, Random& random) {
  if (items.empty()) return items.push_back(others.empty() ? "" : others[below(random, others.size())]);
  std::string& one = items[below(random, items.size())];
  switch (below(random, 4)) {
    case 0: return one.clear();
    case 1: one += std::string(one); return;
    case 2: return std::swap(one, items[below(random, items.size())]);
    default: one = (others.empty() ? items : others)[below(random, others.empty() ? items.size() : others.size())];
  }
}

std::string bytes_changed(std::string text, std::size_t most) {
  const std::size_t size = text.size();
  text.resize(size + std::min<std::size_t>(most, 8));
  text.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(text.data()), size, text.size()));
  return to_utf8(std::move(text));
}

std::string changed(const std::string& text, const std::string& other, Random& random) {
  const std::string_view separators = below(random, 2) ? "\n" : " ,()\n";
  Texts items = pieces(text, separators);
  if (items.size() < 3) return below(random, 2) ? other : bytes_changed(text, 8);
  change(items, pieces(other, separators), random);
  return joined(items, "");
}

Integer changed(Integer number, Random& random) {
  const Integer numbers[] = {number + 1, number - 1, number * 2, 0, 1, Integer{1} << 53, (Integer{1} << 63) - 1};
  const Integer found = numbers[below(random, std::size(numbers))];
  return found >> 64 == 0 || found < 0 ? found : number;
}

/** Leave out, repeat or add an entry of an object. */
void change(Object& object, const std::vector<Value*>& all, Random& random) {
  if (object.empty()) return;
  const auto entry = *(object.begin() + static_cast<std::ptrdiff_t>(below(random, object.size())));
  const Value other = *all[below(random, all.size())];
  const std::string* name = other.as<std::string>();
  if (below(random, 2)) object.erase(entry.first);
  else object.set(name != nullptr ? *name : entry.first + "x", entry.second);
}

void change(List& list, Random& random) {
  if (list.empty()) return;
  const auto at = list.begin() + static_cast<std::ptrdiff_t>(below(random, list.size()));
  switch (below(random, 3)) {
    case 0: list.erase(at); return;
    case 1: list.insert(at, Value(*at)); return;
    default: std::swap(*at, list[below(random, list.size())]);
  }
}

void change(Value& root, Random& random) {
  std::vector<Value*> all;
  fuzz::collect(root, all);
  Value& one = *all[below(random, all.size())];
  const Value other = *all[below(random, all.size())];
  if (below(random, 6) == 0) {
    one = other;
  } else if (std::string* text = std::get_if<std::string>(&one.data)) {
    *text = changed(*text, other.as<std::string>() ? *other.as<std::string>() : *text, random);
  } else if (Integer* number = std::get_if<Integer>(&one.data)) {
    *number = changed(*number, random);
  } else if (Object* object = std::get_if<Object>(&one.data)) {
    change(*object, all, random);
  } else if (List* list = std::get_if<List>(&one.data)) {
    change(*list, random);
  } else {
    one = {Integer{1}};
  }
}

/** One of the documents between NULs, changed; empty where it is no JSON. */
std::string mutant(std::string_view input, Random& random) {
  const std::size_t end = std::min(input.find('\0'), input.size());
  const bool is_first = end == input.size() || below(random, 2) == 0;
  const std::string_view part = is_first ? input.substr(0, end) : input.substr(end + 1);
  try {
    Value root = read_json(part, "it");
    for (std::size_t count = 1 + below(random, 3); count > 0; --count) change(root, random);
    const std::string text = compact_json(root);
    return is_first ? text + std::string(input.substr(end)) : std::string(input.substr(0, end + 1)) + text;
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  Random random(seed);
  const std::string found = below(random, 4) == 0 ? "" : mutant(fuzz::text_of(data, size), random);
  if (found.empty() || found.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::ranges::copy(found, data);
  return found.size();
}
