/// \file  How threads of a parallel region wait for work.
#pragma once

namespace evenkeel {

/// Threads that wait sleep. By default they spin for milliseconds, and where another process wants the processor they
/// use up what the scheduler grants them: beside one busy process a step took 2.2 times its quiet time, and takes 1.7
/// (docs/performance.md). The library reads its settings when it is loaded, so the program begins again with them,
/// once; nothing happens where the environment says something of its own (OMP_WAIT_POLICY, GOMP_SPINCOUNT) or names one
/// thread (OMP_NUM_THREADS=1), which has nobody to wait for. Call it first in main().
void let_waiting_threads_sleep(char** argv);

}  // namespace evenkeel
