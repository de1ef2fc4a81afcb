/// \file  Requests huge pages for large memory blocks.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace evenkeel {

/// Size of a huge page in bytes.
constexpr size_t kHugePage = size_t{1} << 21;

/// Asks the system to use huge pages (MADV_HUGEPAGE) for [memory, memory + bytes), except for the ends that do not fill
/// a huge page. Huge pages reduce page faults and TLB misses. The system may ignore the request. Call it before the
/// memory is first touched.
inline void wish_huge_pages(void* memory, size_t bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (reinterpret_cast<uintptr_t>(memory) + bytes) / kHugePage * kHugePage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace evenkeel
