/// \file  Sets the number of threads of LibTorch's pool.
#pragma once

#include <cstdint>

namespace evenkeel {

/// Makes at::parallel_for use `threads` threads when this thread calls it, and checks that the system starts so many.
/// Without the check the OpenMP library would end the process later, with a line of its own.
/// \param threads  1 or more
/// \throws kIo when the system starts fewer
void use_pool_threads(int64_t threads);

}  // namespace evenkeel
