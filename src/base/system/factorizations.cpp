#include "base/system/factorizations.h"

// MKL's own function, part of LibTorch's library. Returns the thread's setting so far; 0: the process's setting.
extern "C" int MKL_Set_Num_Threads_Local(int threads) __attribute__((weak));

namespace evenkeel {

OneMklThread::OneMklThread() : before_(MKL_Set_Num_Threads_Local ? MKL_Set_Num_Threads_Local(1) : 0) {}

OneMklThread::~OneMklThread() {
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(before_);
}

}  // namespace evenkeel
