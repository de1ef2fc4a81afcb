#include "privacy/key_file.h"

#include <array>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/private_file.h"

namespace evenkeel::privacy {
namespace {

void make_key(const fs::path& file) {
  const auto half_made = fs::path(file).concat(".new");
  remove_path(half_made);  // left by a process that was killed
  const auto made = write_new_private_file(half_made, crypto::Secret::random().view());
  EK_CHECK(made, kIo, half_made.string(), " was made by another process");
  std::error_code error;
  fs::rename(half_made, file, error);
  EK_CHECK(!error, kIo, file.string(), " cannot be made: ", error.message());
  flush_files(std::array{file});
}

}  // namespace

crypto::Secret key_in(const fs::path& file) {
  constexpr size_t kBytes = 32;
  if (!path_exists(file)) make_key(file);
  require_private_file(file);
  auto text = read_file(file, kBytes);
  auto secret = crypto::Secret::from(text, file.string());
  crypto::wipe(text);
  return secret;
}

}  // namespace evenkeel::privacy
