#include "data/file_identity.h"

#include <sys/stat.h>

#include "base/format/fingerprint.h"
#include "base/plain/error.h"
#include "base/plain/files.h"

namespace evenkeel::data {
namespace {

struct stat status_of(const std::string& file) {
  struct stat status {};
  EK_CHECK(::stat(file.c_str(), &status) == 0, kIo, file, " cannot be read");
  return status;
}

}  // namespace

bool KnownFiles::add(const std::string& file) {
  const auto status = status_of(file);
  if (!nodes_.emplace(status.st_dev, status.st_ino).second) return false;
  by_size_.emplace(static_cast<uint64_t>(status.st_size), Known{file, {}});
  return true;
}

std::optional<std::string> KnownFiles::with_content_of(const std::string& file) {
  const auto [first, last] = by_size_.equal_range(static_cast<uint64_t>(status_of(file).st_size));
  if (first == last) return std::nullopt;
  const auto digest = fingerprint_of(file).digest;
  for (auto known = first; known != last; ++known) {
    auto& [name, its_digest] = known->second;
    if (its_digest.empty()) its_digest = fingerprint_of(name).digest;
    if (its_digest == digest) return name;
  }
  return std::nullopt;
}

}  // namespace evenkeel::data
