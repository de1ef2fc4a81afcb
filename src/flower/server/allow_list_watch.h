/// \file  Reads a list of allowed keys again when its content changes, so that keys are admitted and removed while a
/// server runs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "flower/format/keys.h"

namespace evenkeel::flower {

/// Watches one file. Threads: one.
class AllowListWatch {
 public:
  explicit AllowListWatch(std::filesystem::path file) : file_(std::move(file)) {}

  /// Reads the file. Returns its list if the content is new and two calls in a row have read it: an editor may write a
  /// file in several steps. A file that cannot be read, or holds no valid list, is reported once in the log; then
  /// nothing is returned, and the earlier list stays in force.
  std::optional<std::vector<AllowedKey>> look();

 private:
  void warn(const std::string& why);

  std::filesystem::path file_;
  std::optional<std::string> seen_{}, taken_{};  // content at the last look, and content that was judged last
  std::string warned_{};                         // the last warning
};

}  // namespace evenkeel::flower
