#include "base/mappings.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/files.h"

namespace evenkeel {
namespace {

constexpr std::string_view kUnnamed =
    "evenkeel: [io] a mapped file became shorter, or its disk failed, while it was read\n";

struct Mapped {
  fs::path file;
  std::string line;  // what the handler says
  struct stat status;
};

/// What the handler may look at: no lock, no allocation. A mapping beyond the last slot loses its name, nothing else.
struct Slot {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<const std::string*> line{nullptr};
};
std::array<Slot, 4096> slots;

std::atomic<size_t> done_with{0};  // bytes, since pages went

std::mutex mutex;
std::map<const void*, Mapped>& mappings() {
  static auto* all = new std::map<const void*, Mapped>;  // outlives every static object that maps a file
  return *all;
}

/// The address lies in no page of the file any more, or the disk did not deliver it. Other causes keep their default.
void on_bus_error(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {
    std::signal(signal, SIG_DFL);  // the instruction runs again, and the process dies of it
    return;
  }
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  std::string_view line = kUnnamed;
  for (const auto& slot : slots)
    if (const auto* named = slot.line.load(); named && slot.begin <= address && address < slot.end) line = *named;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(1);
}

void install_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

void fill_slot(uintptr_t begin, size_t size, const std::string& line) {
  for (auto& slot : slots) {
    if (slot.line.load() != nullptr) continue;
    slot.begin = begin;
    slot.end = begin + size;
    slot.line = &line;
    return;
  }
}

bool same_content(const struct stat& then, const struct stat& now) {
  const bool same_file = then.st_dev == now.st_dev && then.st_ino == now.st_ino;
  return !same_file ||  // replaced by a rename: the mapping still shows the old one, whole
         (then.st_size == now.st_size && then.st_mtim.tv_sec == now.st_mtim.tv_sec &&
          then.st_mtim.tv_nsec == now.st_mtim.tv_nsec);
}

}  // namespace

void enter_mapping(const void* address, size_t size, const fs::path& file, const struct stat& status) {
  static std::once_flag once;
  std::call_once(once, install_handler);
  const std::scoped_lock lock(mutex);
  auto& mapped = mappings()[address];
  const Error error(kIo, concat(file.string(), ": became shorter, or its disk failed, while it was read"));
  mapped = {fs::absolute(file), concat("evenkeel: ", error.what(), '\n'), status};
  fill_slot(reinterpret_cast<uintptr_t>(address), size, mapped.line);
}

void leave_mapping(const void* address) {
  const std::scoped_lock lock(mutex);
  for (auto& slot : slots)
    if (slot.begin == reinterpret_cast<uintptr_t>(address)) slot.line = nullptr, slot.begin = 0;
  mappings().erase(address);
}

void check_mapped_files() {
  const std::scoped_lock lock(mutex);
  for (const auto& [address, mapped] : mappings()) {
    struct stat now = {};
    const bool there = ::stat(mapped.file.c_str(), &now) == 0;
    EK_CHECK(!there || same_content(mapped.status, now), kIo, mapped.file.string(),
             ": was changed while it was in use (", mapped.status.st_size, " bytes before, ", now.st_size, " now)");
  }
}

void release_mapped_pages() {
  done_with = 0;
  const std::scoped_lock lock(mutex);
  for (const auto& [address, mapped] : mappings())
    ::madvise(const_cast<void*>(address), static_cast<size_t>(mapped.status.st_size), MADV_DONTNEED);
}

void done_with_mapped(size_t bytes) {
  constexpr size_t kAtOnce = 64 << 20;
  if (done_with.fetch_add(bytes) + bytes >= kAtOnce) release_mapped_pages();
}

}  // namespace evenkeel
