// A map that keeps the order in which its keys came, as a Python dict does.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace partc {

/// Hash of plain keys, and of pairs and triples of them.
struct KeyHash {
  template <class T>
  std::size_t operator()(const T& key) const {
    return std::hash<T>{}(key);
  }
  template <class... Parts>
  std::size_t operator()(const std::tuple<Parts...>& key) const {
    return std::apply([this](const auto&... part) { return combine((*this)(part)...); }, key);
  }
  template <class A, class B>
  std::size_t operator()(const std::pair<A, B>& key) const {
    return combine((*this)(key.first), (*this)(key.second));
  }

 private:
  template <class... Hashes>
  static std::size_t combine(Hashes... hashes) {
    std::size_t all = 0;
    ((all = all * 1000003u + hashes), ...);
    return all;
  }
};

/// Insertion order; O(1) for large maps, a scan for small ones. Erasing takes O(n), and moves what lies behind.
template <class Key, class Value>
class Map {
 public:
  using Entry = std::pair<Key, Value>;

  Map() = default;
  Map(std::initializer_list<Entry> entries) {
    for (const Entry& entry : entries) set(entry.first, entry.second);
  }

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  void clear() {
    entries_.clear();
    index_.clear();
  }

  const Value* find(const Key& key) const {
    std::size_t at = place(key);
    return at == NONE ? nullptr : &entries_[at].second;
  }
  Value* find(const Key& key) {
    std::size_t at = place(key);
    return at == NONE ? nullptr : &entries_[at].second;
  }
  bool contains(const Key& key) const { return place(key) != NONE; }
  /// Throws std::out_of_range: the key is not there.
  const Value& at(const Key& key) const { return entries_.at(place(key)).second; }
  Value& at(const Key& key) { return entries_.at(place(key)).second; }

  /// The entry of a key, made where there is none.
  Value& operator[](const Key& key) {
    std::size_t at = place(key);
    if (at != NONE) return entries_[at].second;
    return append(key, Value{});
  }
  /// A key that is there keeps its place.
  void set(const Key& key, Value value) {
    if (Value* found = find(key)) {
      *found = std::move(value);
    } else {
      append(key, std::move(value));
    }
  }
  /// Whether it was there.
  bool erase(const Key& key) {
    std::size_t at = place(key);
    if (at == NONE) return false;
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
    reindex();
    return true;
  }
  template <class Test>
  void erase_if(Test test) {
    std::erase_if(entries_, test);
    reindex();
  }

  /// The same keys with the same values, in any order.
  bool operator==(const Map& other) const {
    if (size() != other.size()) return false;
    for (const Entry& entry : entries_) {
      const Value* found = other.find(entry.first);
      if (found == nullptr || !(*found == entry.second)) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t NONE = static_cast<std::size_t>(-1);
  static constexpr std::size_t SMALL = 8;

  std::size_t place(const Key& key) const {
    if (entries_.size() > SMALL) {
      auto found = index_.find(key);
      return found == index_.end() ? NONE : found->second;
    }
    for (std::size_t at = 0; at < entries_.size(); ++at) {
      if (entries_[at].first == key) return at;
    }
    return NONE;
  }
  Value& append(const Key& key, Value value) {
    entries_.emplace_back(key, std::move(value));
    if (entries_.size() == SMALL + 1) {
      reindex();
    } else if (entries_.size() > SMALL) {
      index_.emplace(key, entries_.size() - 1);
    }
    return entries_.back().second;
  }
  void reindex() {
    index_.clear();
    if (entries_.size() <= SMALL) return;
    for (std::size_t at = 0; at < entries_.size(); ++at) index_.emplace(entries_[at].first, at);
  }

  std::vector<Entry> entries_;
  std::unordered_map<Key, std::size_t, KeyHash> index_;
};

}  // namespace partc
