/// \file  Reports the end of the program by a library. OpenMP's library calls exit() when it cannot start a thread.
#pragma once

#include <functional>

#include "base/plain/error.h"

namespace evenkeel::apps {

/// While an object exists, exit() of a library becomes an error of the program.
class LibraryExit {
 public:
  /// \param report  prints the error and returns the exit code; called in the thread that called exit()
  explicit LibraryExit(std::function<int(const Error&)> report);
  ~LibraryExit();
  LibraryExit(const LibraryExit&) = delete;
  LibraryExit& operator=(const LibraryExit&) = delete;
};

}  // namespace evenkeel::apps
