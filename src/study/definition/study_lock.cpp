#include "study/definition/study_lock.h"

#include <chrono>
#include <thread>

#include "base/plain/error.h"
#include "base/plain/files.h"

namespace evenkeel::study {
namespace {

constexpr std::chrono::seconds kPatience{30};  // to wait for another process that writes study.json

}  // namespace

FolderLock lock_state(const fs::path& folder) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) try {
      return FolderLock(folder);
    } catch (const InUse&) {
      if (std::chrono::steady_clock::now() > deadline) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

}  // namespace evenkeel::study
