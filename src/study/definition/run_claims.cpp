#include "study/definition/run_claims.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/plain/error.h"
#include "base/plain/files.h"

namespace evenkeel::study {
namespace {

bool lock_byte(int descriptor, size_t at) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(at);
  lock.l_len = 1;
  return ::fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
}

}  // namespace

RunClaims::RunClaims(const fs::path& folder, std::span<const size_t> runs, std::span<const std::string> labels)
    : descriptor_(::open((folder / kFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  EK_CHECK(descriptor_ >= 0, kIo, folder.string(), ": cannot be written to: ", std::strerror(errno));
  for (size_t i = 0; i < runs.size(); ++i) {
    if (lock_byte(descriptor_, runs[i])) continue;
    const int reason = errno;
    ::close(descriptor_);
    EK_CHECK(reason == EAGAIN || reason == EACCES, kIo, folder.string(), ": cannot be locked: ", std::strerror(reason));
    fail(kIo, folder.string(), ": another process makes ", labels[i],
         ": wait for its end, or choose other runs by --shard or --only");
  }
}

RunClaims::~RunClaims() { ::close(descriptor_); }

}  // namespace evenkeel::study
