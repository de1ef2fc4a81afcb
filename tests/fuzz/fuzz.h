/// \file  Provides common parts of all fuzz targets. A target defines fuzz_one() for one input. Invalid input must end
/// in an Error that the user can act on. Everything else is a finding: another exception, an internal error, a message
/// that is not one line of at most 500 bytes, a sanitizer's report, or more time or memory than tools/fuzz allows.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/plain/error.h"
#include "base/plain/log.h"
#include "base/plain/sealed.h"
#include "base/testing.h"

namespace evenkeel::fuzz {

void fuzz_one(std::string_view input);

/// Returns a folder of this process below TMPDIR, for readers of files. Each start recreates it.
inline const fs::path& folder() {
  static const testing::TemporaryFolder folder;
  return folder.path();
}

/// Replaces a file of folder() without flushing or renaming.
inline fs::path write(const fs::path& name, std::string_view bytes) {
  const auto path = folder() / name;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ::write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  ::close(file);
  return path;
}

/// Returns the input with a valid checksum if it is a JSON object, so that the code after the check is reached too.
inline std::string resealed(std::string_view input) {
  try {
    const Json json = parse_json(input, "input");
    if (json.is_object() && !json.empty()) return sealed(OrderedJson(json));
  } catch (const Error&) {  // not JSON: unchanged
  }
  return std::string(input);
}

/// Reports a finding and ends the process.
[[noreturn]] inline void finding(std::string_view what, std::string_view text) {
  std::fprintf(stderr, "finding: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(text.size()), text.data());
  std::abort();
}

/// Checks that a message fits a terminal: one short line without control characters.
inline void check_message(const Error& error) {
  const std::string_view text = error.what();
  if (error.kind() == kInternal) finding("an internal error", text);
  if (text.size() > 500) finding("a message of more than 500 bytes", text.substr(0, 500));
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) finding("a message with a control character", text);
}

}  // namespace evenkeel::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  evenkeel::log::set_level(evenkeel::log::Level::kError);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    evenkeel::fuzz::fuzz_one({reinterpret_cast<const char*>(data), size});
  } catch (const evenkeel::Error& error) {
    evenkeel::fuzz::check_message(error);
  }
  return 0;
}
