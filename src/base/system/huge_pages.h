/// \file  Large memory in large pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace evenkeel {

constexpr size_t kHugePage = size_t{1} << 21;

/// Asks for huge pages where whole ones lie in this memory: fewer pages to fault in and to look up. A wish: without it,
/// small pages. Call it before the memory is first touched.
inline void wish_huge_pages(void* memory, size_t bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (reinterpret_cast<uintptr_t>(memory) + bytes) / kHugePage * kHugePage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace evenkeel
