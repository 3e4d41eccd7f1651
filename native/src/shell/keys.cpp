#include "shell/keys.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "errors.hpp"
#include "format/json.hpp"
#include "format/local_file.hpp"

namespace partc::shell {
namespace {

constexpr std::size_t kDigits = 40;
constexpr std::uint64_t kMostBytes = 1 << 20;
constexpr const char* kRemedy = "partc keys BUILD makes new keys; copy each device's keys folder to it again";

Error no_key_file(const std::string& path, const std::string& expected) {
  return bundle_error("not a key file: " + expected, path, kRemedy);
}

/** The rights of a file that is no link and does not lie in one. */
mode_t rights(const std::string& folder, const std::string& path) {
  for (const std::string& place : {folder, path}) {
    struct stat found {};
    if (lstat(place.c_str(), &found) != 0) throw bundle_error("the keys are missing", path, kRemedy);
    if (S_ISLNK(found.st_mode)) throw bundle_error("a symbolic link has no place among keys", path, kRemedy);
    if (place == path) return found.st_mode;
  }
  return 0;
}

std::map<std::string, std::string> read_texts(const std::string& path) {
  const LocalFile file(path);
  if (file.size() > kMostBytes) throw no_key_file(path, "it is too large");
  std::map<std::string, std::string> found;
  const char* expected = "Z85 texts of 40 letters are expected";
  const Value raw = read_json(file.whole(), path);
  const Object* object = raw.as<Object>();
  if (object == nullptr) throw no_key_file(path, expected);
  for (const auto& [name, value] : *object) {
    const std::string* text = value.as<std::string>();
    if (text == nullptr || text->size() != kDigits) throw no_key_file(path, expected);
    found[name] = *text;
  }
  return found;
}

}  // namespace

std::string Keys::name_of(const std::string& key) const {
  for (const auto& [name, known] : peers)
    if (known == key) return name;
  return "";
}

Keys load_device_keys(const std::string& bundle) {
  const std::string folder = bundle + "/keys", secret = folder + "/secret.key", peers = folder + "/peers.json";
  const mode_t mode = rights(folder, secret);
  const auto own = read_texts(secret);
  if (mode & 077) throw bundle_error("other users may read this secret key", secret, "chmod 600 " + secret);
  if (own.size() != 2 || !own.contains("public") || !own.contains("secret"))
    throw no_key_file(secret, "public and secret are expected");
  rights(folder, peers);
  return {own.at("public"), own.at("secret"), read_texts(peers)};
}

}  // namespace partc::shell
