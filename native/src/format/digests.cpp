#include "format/digests.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "format/complaints.hpp"
#include "format/json.hpp"
#include "format/text.hpp"

namespace partc {
void Sha256::update(std::string_view bytes) {
  const std::size_t held = size_ % 64;
  size_ += bytes.size();
  if (held) {
    const std::size_t more = std::min(64 - held, bytes.size());
    std::memcpy(rest_.data() + held, bytes.data(), more);
    bytes.remove_prefix(more);
    if (held + more < 64) return;
    blocks_(state_, rest_.data(), 1);
  }
  const std::size_t whole = bytes.size() / 64;
  blocks_(state_, reinterpret_cast<const unsigned char*>(bytes.data()), whole);
  bytes.remove_prefix(whole * 64);
  std::memcpy(rest_.data(), bytes.data(), bytes.size());
}

std::string Sha256::digest() {
  const std::uint64_t bits = size_ * 8;
  std::string end(1, '\x80');
  end.append((119 - size_ % 64) % 64, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) end += static_cast<char>(bits >> shift);
  update(end);
  std::string found;
  for (const std::uint32_t word : state_) {
    for (int shift = 24; shift >= 0; shift -= 8) found += static_cast<char>(word >> shift);
  }
  return found;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return to_hex(hash.digest());
}

std::string data_digest(const Value& value) { return sha256_hex(canonical_json(value)); }

std::string file_digest(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) throw bundle_error(std::string("cannot be read: ") + std::strerror(errno), path);
  Sha256 hash;
  std::vector<char> buffer(1 << 18);
  while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    hash.update({buffer.data(), size});
  }
  if (std::ferror(file.get())) throw bundle_error("cannot be read to its end", path);
  return to_hex(hash.digest());
}

}  // namespace partc
