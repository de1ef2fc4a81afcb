/// \file  Memory that a thread uses again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "base/system/huge_pages.h"

namespace evenkeel::kernels {

/// Reusable memory of one thread, on cache-line boundaries: the library's products may sum in another order when their
/// operands are aligned otherwise, and a run must repeat to the bit. Much of it lies in huge pages where the system has
/// them: rows of logits are 200 KB apart, each on a page of its own otherwise.
template <typename T>
class Scratch {
 public:
  /// At least n numbers, uninitialised; the pointer is good until the next call with a larger n.
  T* at_least(int64_t n) {
    if (room_ < n) {
      memory_ = allocate(static_cast<size_t>(n) * sizeof(T));
      room_ = n;
    }
    return data();
  }
  /// The same pointer again: what at_least() gave last, none before its first call.
  T* data() const { return memory_.get(); }

 private:
  struct Free {
    std::align_val_t alignment{64};
    void operator()(T* memory) const { ::operator delete(memory, alignment); }
  };
  using Memory = std::unique_ptr<T, Free>;
  static Memory allocate(size_t bytes) {
    const Free free{bytes < 2 * kHugePage ? std::align_val_t{64} : std::align_val_t{kHugePage}};
    Memory memory(static_cast<T*>(::operator new(bytes, free.alignment)), free);
    if (bytes >= 2 * kHugePage) wish_huge_pages(memory.get(), bytes);
    return memory;
  }

  Memory memory_;
  int64_t room_ = 0;
};

}  // namespace evenkeel::kernels
