/// \file  Memory that a thread uses again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace evenkeel::kernels {

/// Reusable memory of one thread, on cache-line boundaries: the library's products may sum in another order when their
/// operands are aligned otherwise, and a run must repeat to the bit.
template <typename T>
class Scratch {
 public:
  /// At least n numbers, uninitialised; the pointer is good until the next call with a larger n.
  T* at_least(int64_t n) {
    if (room_ < n) {
      memory_.reset(static_cast<T*>(::operator new(static_cast<size_t>(n) * sizeof(T), kAlignment)));
      room_ = n;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<T, Free> memory_;
  int64_t room_ = 0;
};

}  // namespace evenkeel::kernels
