#include "base/plain/mapped_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/plain/descriptor.h"
#include "base/plain/error.h"
#include "base/plain/os_error.h"

namespace evenkeel {
namespace {

constexpr std::string_view kUnnamed =
    "evenkeel: [io] a mapped file became shorter, or its disk failed, while it was read\n";

struct Mapped {
  fs::path file;
  std::string line;  // the message that the signal handler prints
  struct stat status;
};

/// The data that the signal handler reads: no lock, no allocation. A mapping without a free slot only loses its name in
/// the message.
struct Slot {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<const std::string*> line{nullptr};
};
std::array<Slot, 4096> slots;

std::atomic<size_t> bytes_since_release{0};  // bytes that were read since pages were last released

std::mutex mutex;
std::map<const void*, Mapped>& mappings() {
  // Never destroyed, because static objects may map files until the process ends.
  static auto* all = new std::map<const void*, Mapped>;
  return *all;
}

/// Handles an access beyond the end of a file that became shorter, or a disk error. Other causes get the default
/// action.
void on_bus_error(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {
    std::signal(signal, SIG_DFL);  // the instruction runs again and the default action ends the process
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
  return !same_file ||  // a file that replaced it by rename does not change the mapping
         (then.st_size == now.st_size && then.st_mtim.tv_sec == now.st_mtim.tv_sec &&
          then.st_mtim.tv_nsec == now.st_mtim.tv_nsec);
}

/// Registers a mapping. The first call installs the SIGBUS handler. \param status  the file's status when it was mapped
void register_mapping(const void* address, size_t size, const fs::path& file, const struct stat& status) {
  static std::once_flag once;
  std::call_once(once, install_handler);
  const std::scoped_lock lock(mutex);
  auto& mapped = mappings()[address];
  const Error error(kIo, concat(file.string(), ": became shorter, or its disk failed, while it was read"));
  mapped = {fs::absolute(file), concat("evenkeel: ", error.what(), '\n'), status};
  fill_slot(reinterpret_cast<uintptr_t>(address), size, mapped.line);
}

void unregister_mapping(const void* address) {
  const std::scoped_lock lock(mutex);
  for (auto& slot : slots)
    if (slot.begin == reinterpret_cast<uintptr_t>(address)) slot.line = nullptr, slot.begin = 0;
  mappings().erase(address);
}

/// An open regular file.
class FileToMap {
 public:
  /// O_NONBLOCK has no effect on a regular file. Without it, opening a pipe would wait for a writer.
  explicit FileToMap(const fs::path& file) : descriptor_(open_file(file, O_RDONLY | O_NONBLOCK)) {
    const bool is_file = ::fstat(descriptor_.get(), &status_) == 0 && S_ISREG(status_.st_mode);
    EK_CHECK(is_file, kIo, file.string(), ": not a file");
  }
  int descriptor() const { return descriptor_.get(); }
  size_t size() const { return static_cast<size_t>(status_.st_size); }
  const struct stat& status() const { return status_; }

 private:
  Descriptor descriptor_;
  struct stat status_ = {};
};

}  // namespace

MappedFile::MappedFile(const fs::path& file) {
  const FileToMap opened(file);
  size_ = opened.size();
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, opened.descriptor(), 0);
  EK_CHECK(address != MAP_FAILED, kIo, file.string(), ": cannot be mapped: ", os_error_text(errno));
  ::madvise(address, size_, MADV_HUGEPAGE);  // file systems without huge pages refuse this hint, which does no harm
  data_ = static_cast<const std::byte*>(address);
  register_mapping(address, size_, file, opened.status());
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  unregister_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
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
  bytes_since_release = 0;
  const std::scoped_lock lock(mutex);
  for (const auto& [address, mapped] : mappings())
    ::madvise(const_cast<void*>(address), static_cast<size_t>(mapped.status.st_size), MADV_DONTNEED);
}

void advise_dontneed(size_t bytes) {
  constexpr size_t kAtOnce = 64 << 20;
  if (bytes_since_release.fetch_add(bytes) + bytes >= kAtOnce) release_mapped_pages();
}

}  // namespace evenkeel
