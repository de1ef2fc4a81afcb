#include "host/segments.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/plain/error.h"
#include "base/plain/os_error.h"

namespace evenkeel::host {
namespace {

constexpr size_t kLeastBytes = size_t{1} << 16;

Descriptor shared_memory(size_t bytes) {
  Descriptor made(::memfd_create("evenkeel-method", MFD_CLOEXEC));
  EK_CHECK(made.get() >= 0 && ::ftruncate(made.get(), static_cast<off_t>(bytes)) == 0, kIo, "shared memory of ", bytes,
           " bytes for a method in Python: ", os_error_text(errno));
  return made;
}

size_t length_of(int descriptor) {
  struct stat info {};
  EK_CHECK(::fstat(descriptor, &info) == 0, kIo, "shared memory of a method in Python: ", os_error_text(errno));
  return static_cast<size_t>(info.st_size);
}

}  // namespace

Segment::Segment(int64_t id, size_t bytes) : id_(id), descriptor_(shared_memory(bytes)), bytes_(bytes) { map(); }

Segment::Segment(int64_t id, Descriptor descriptor)
    : id_(id), descriptor_(std::move(descriptor)), bytes_(length_of(descriptor_.get())) {
  map();
}

void Segment::map() {
  void* place = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.get(), 0);
  EK_CHECK(place != MAP_FAILED, kIo, "shared memory of ", bytes_, " bytes cannot be mapped: ", os_error_text(errno));
  data_ = static_cast<std::byte*>(place);
}

Segment::~Segment() {
  if (data_) ::munmap(data_, bytes_);
}

TakenSegment SegmentPool::take(size_t bytes) {
  const auto smaller = [](const auto& one, const auto& other) { return one->size() < other->size(); };
  std::sort(free_.begin(), free_.end(), smaller);
  const auto fits = [&](const auto& segment) { return segment->size() >= bytes; };
  if (const auto found = std::find_if(free_.begin(), free_.end(), fits); found != free_.end()) {
    TakenSegment taken{*found, false};
    free_.erase(found);
    return taken;
  }
  return {std::make_shared<Segment>(next_id_++, std::max(kLeastBytes, std::bit_ceil(bytes))), true};
}

}  // namespace evenkeel::host
