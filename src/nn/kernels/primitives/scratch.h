/// \file  Defines a growing buffer that one thread reuses from call to call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "base/system/huge_pages.h"

namespace evenkeel::nn::kernels {

/// A reusable buffer of numbers of type T. The memory begins at a cache line (64 bytes): the BLAS library may sum in
/// another order when its operands are aligned differently, and runs must repeat to the bit. Buffers of two huge pages
/// and more ask the system for huge pages, because rows of logits are some 200 KB apart, so that each would need a
/// TLB entry of its own. Threads: one at a time.
template <typename T>
class Scratch {
 public:
  /// Returns memory for at least `n` numbers, uninitialised. The pointer is valid until the next call with a larger n.
  T* at_least(int64_t n) {
    if (capacity_ < n) {
      memory_ = allocate(static_cast<size_t>(n) * sizeof(T));
      capacity_ = n;
    }
    return data();
  }
  /// Returns the pointer of the last at_least(), or null before its first call.
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
  int64_t capacity_ = 0;
};

}  // namespace evenkeel::nn::kernels
