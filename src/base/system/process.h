/// \file  Configures the process at start: memory allocation, waiting threads, environment.
#pragma once

namespace evenkeel {

/// Configures the process. Call it first in main(), before threads exist. It may restart the program once with execv(),
/// because the OpenMP library reads its settings when it is loaded.
///
/// Freed memory stays with the process. By default glibc maps each block above 32 MiB anew, which cost a training step
/// of 2,048 tokens a fourteenth of its time in page faults (docs/performance.md).
///
/// Waiting threads sleep. By default they spin for milliseconds and so use up their share of a processor that another
/// process needs. With one other busy process a step took 2.2 times its usual time with spinning and takes 1.7 times
/// with sleeping (docs/performance.md). This setting is skipped when the environment has OMP_WAIT_POLICY or
/// GOMP_SPINCOUNT, or OMP_NUM_THREADS=1.
///
/// It also sets the environment variable that deterministic GPU products need (base/system/device.h).
void settle_process(char** argv);

/// Returns freed memory to the system (malloc_trim). Call it at most once a round, because later allocations then cause
/// page faults. Threads: any. Does nothing when the allocator is not glibc's.
void give_back_freed_memory();

}  // namespace evenkeel
