/// \file  Runs loops whose pieces factorise matrices (QR, SVD, eigenvalues) on all threads.
#pragma once

#include "base/system/parallel.h"

namespace evenkeel {

/// While an object exists, MKL uses one thread for calls of this thread. LibTorch calls MKL for LAPACK. Does nothing in
/// a LibTorch without MKL.
/// Reason: LibTorch disables MKL's check for an enclosing parallel region. A QR factorisation inside a parallel region
/// then waits for ever for threads that it does not get. Matrices of 192 x 40 on two threads show it.
class OneMklThread {
 public:
  OneMklThread();
  ~OneMklThread();
  OneMklThread(const OneMklThread&) = delete;
  OneMklThread& operator=(const OneMklThread&) = delete;

 private:
  int before_;
};

/// As for_each_piece(), for work that calls LAPACK: at::linalg_qr, linalg_svd, linalg_eigh and their like.
template <typename Work>
void for_each_factorization(int64_t count, const Work& work) {
  const bool in_parallel = std::min<int64_t>(count, at::get_num_threads()) > 1;
  for_each_piece(count, [&](int64_t i) {
    if (!in_parallel) return work(i);
    const OneMklThread one;
    work(i);
  });
}

}  // namespace evenkeel
