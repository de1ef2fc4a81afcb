#include "base/plain/os_error.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace evenkeel {
namespace {

struct Limit {
  int error;
  std::string_view shown_by;
};

constexpr std::array kLimits = {Limit{EMFILE, "ulimit -n"},
                                Limit{ENFILE, "fs.file-max of the whole machine"},
                                Limit{ENOMEM, "free memory, ulimit -v, vm.max_map_count"},
                                Limit{EDQUOT, "quota -s"},
                                Limit{ENOSPC, "df -h, df -i"},
                                Limit{EFBIG, "ulimit -f, or the largest file of the file system"},
                                Limit{EROFS, "findmnt -T, choose another folder"},
                                Limit{ENAMETOOLONG, "most file systems take 255 bytes a name, Linux 4,096 a path"},
                                Limit{EAGAIN, "ulimit -a, pids.max"}};

}  // namespace

std::string os_error_text(int error) {
  for (const auto& limit : kLimits)
    if (limit.error == error) return concat(std::strerror(error), " (", limit.shown_by, ")");
  return std::strerror(error);
}

std::string no_process_text(int error, const char* lower) {
  if (error != EAGAIN) return os_error_text(error);
  return concat("no more processes can be started (ulimit -u, pids.max): lower ", lower);
}

bool is_thread_limit(const std::system_error& error) {
  return error.code() == std::error_code(EAGAIN, std::generic_category()) ||
         error.code() == std::error_code(EAGAIN, std::system_category());
}

Error os_error(const std::system_error& error) {
  if (is_thread_limit(error)) return Error(kIo, kNoMoreThreads);
  const bool of_system =
      error.code().category() == std::generic_category() || error.code().category() == std::system_category();
  return Error(kIo, of_system ? os_error_text(error.code().value()) : std::string(error.what()));
}

}  // namespace evenkeel
