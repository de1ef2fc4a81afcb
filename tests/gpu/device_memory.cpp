#include "device_memory.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <vector>

namespace evenkeel::simulated_gpu {
namespace {

constexpr size_t kAlignment = 512;  // bytes, as on a GPU

size_t setting(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

void* mapped(int file, size_t bytes, int protection) {
  void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (address == MAP_FAILED) throw std::runtime_error("the memory of a simulated GPU cannot be mapped");
  return address;
}

std::vector<std::unique_ptr<DeviceMemory>>& memories() {
  static auto* all = [] {  // never destroyed: tensors may outlive it
    auto* made = new std::vector<std::unique_ptr<DeviceMemory>>();
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) made->push_back(std::make_unique<DeviceMemory>(i));
    return made;
  }();
  return *all;
}

static_assert(sizeof(Counts) == 5 * sizeof(int64_t));

// The file is shared memory, because the program ends without destructors.
Counts* shared_counts() {
  const char* path = std::getenv("EVENKEEL_SIMULATED_GPU_COUNTS");
  if (path == nullptr) return new Counts();
  const int file = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || ::ftruncate(file, sizeof(Counts)) != 0) throw std::runtime_error("no file for the counts");
  auto* counts = static_cast<Counts*>(mapped(file, sizeof(Counts), PROT_READ | PROT_WRITE));
  ::close(file);
  return counts;
}

// Says why the process ends when host code touches memory of a GPU.
void on_fault(int number, siginfo_t* info, void*) {
  constexpr char kText[] = "simulated GPU: the processor accessed memory of a GPU\n";
  for (const auto& memory : memories())
    if (memory->contains(info->si_addr)) (void)!::write(STDERR_FILENO, kText, sizeof(kText) - 1);
  ::signal(number, SIG_DFL);
}

}  // namespace

c10::DeviceIndex device_count() {
  static const auto count = static_cast<c10::DeviceIndex>(setting("EVENKEEL_SIMULATED_GPUS", 1));
  return count;
}

DeviceMemory::DeviceMemory(c10::DeviceIndex index)
    : index_(index), bytes_(setting("EVENKEEL_SIMULATED_GPU_MIB", 4096) << 20) {
  const int file = ::memfd_create("evenkeel-simulated-gpu", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes_)) != 0)
    throw std::runtime_error("there is no memory for a simulated GPU");
  addresses_ = static_cast<char*>(mapped(file, bytes_, PROT_NONE));
  accessible_ = static_cast<char*>(mapped(file, bytes_, PROT_READ | PROT_WRITE));
  ::close(file);
  unused_[0] = bytes_;
  struct sigaction action = {};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
}

void* DeviceMemory::allocate(size_t bytes) {
  const size_t wanted = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  const std::lock_guard lock(mutex_);
  const auto piece =
      std::find_if(unused_.begin(), unused_.end(), [&](const auto& each) { return each.second >= wanted; });
  TORCH_CHECK_WITH(OutOfMemoryError, piece != unused_.end(), "CUDA out of memory. Tried to allocate ", bytes >> 20,
                   " MiB. GPU ", static_cast<int>(index_), " has a total capacity of ", bytes_ >> 20, " MiB.");
  const auto [offset, size] = *piece;
  unused_.erase(piece);
  if (size > wanted) unused_[offset + wanted] = size - wanted;
  in_use_[offset] = wanted;
  used_ += wanted;
  peak_ = std::max(peak_, used_);
  count({.peak = static_cast<int64_t>(peak_)});
  std::memset(accessible_ + offset, 0xFF, wanted);
  return addresses_ + offset;
}

void DeviceMemory::free(void* address) {
  const std::lock_guard lock(mutex_);
  const auto used = in_use_.find(static_cast<size_t>(static_cast<char*>(address) - addresses_));
  if (used == in_use_.end()) return;
  auto [offset, size] = *used;
  in_use_.erase(used);
  used_ -= size;
  std::memset(accessible_ + offset, 0xFF, size);  // what is read after this is not a number
  auto next = unused_.lower_bound(offset);
  if (next != unused_.end() && offset + size == next->first) {
    size += next->second;
    next = unused_.erase(next);
  }
  if (next != unused_.begin())
    if (const auto before = std::prev(next); before->first + before->second == offset) {
      before->second += size;
      return;
    }
  unused_[offset] = size;
}

std::map<size_t, std::vector<char>> DeviceMemory::contents(const std::function<bool(void* address)>& leaves_out) const {
  const std::lock_guard lock(mutex_);
  std::map<size_t, std::vector<char>> all;
  for (const auto& [offset, size] : in_use_)
    if (!leaves_out(addresses_ + offset)) all[offset].assign(accessible_ + offset, accessible_ + offset + size);
  return all;
}

void DeviceMemory::restore(const std::map<size_t, std::vector<char>>& contents) {
  const std::lock_guard lock(mutex_);
  for (const auto& [offset, bytes] : contents)
    if (const auto used = in_use_.find(offset); used != in_use_.end() && used->second == bytes.size())
      std::memcpy(accessible_ + offset, bytes.data(), bytes.size());
}

bool DeviceMemory::contains(const void* address) const {
  const auto* byte = static_cast<const char*>(address);
  return byte >= addresses_ && byte < addresses_ + bytes_;
}

void* DeviceMemory::accessible(const void* address) const {
  return accessible_ + (static_cast<const char*>(address) - addresses_);
}

size_t DeviceMemory::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

size_t DeviceMemory::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void DeviceMemory::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = used_;
}

DeviceMemory& memory_of(c10::DeviceIndex index) { return *memories().at(static_cast<size_t>(index)); }

void* accessible(const void* address) {
  for (const auto& memory : memories())
    if (memory->contains(address)) return memory->accessible(address);
  TORCH_CHECK(address == nullptr, "simulated GPU: a tensor of the GPU has memory of the processor");
  return nullptr;
}

void count(const Counts& more) {
  static Counts* all = shared_counts();
  const auto add = [](int64_t& sum, int64_t own) {
    if (own != 0) std::atomic_ref(sum).fetch_add(own);
  };
  add(all->operators, more.operators), add(all->waits, more.waits);
  add(all->bytes_up, more.bytes_up), add(all->bytes_down, more.bytes_down);
  std::atomic_ref peak(all->peak);
  for (int64_t known = peak; known < more.peak && !peak.compare_exchange_weak(known, more.peak);) {
  }
}

}  // namespace evenkeel::simulated_gpu
