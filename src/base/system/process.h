/// \file  Configures the process at start: memory allocation, waiting threads, environment.
#pragma once

namespace evenkeel {

/// Applies three settings to the process. Call it first in main(), before threads exist. It may restart the program
/// once with execv(), because the OpenMP library reads its settings when it is loaded.
/// \param argv  the arguments of main(), for the restart
///
/// First setting: malloc keeps freed memory. By default glibc maps each block above 32 MiB anew, and page faults take a
/// fourteenth of the time of a training step of 2,048 tokens (docs/performance.md).
///
/// Second setting: waiting OpenMP threads sleep. By default they spin for milliseconds and use time of a processor that
/// another process needs. With one other busy process a step takes 2.2 times its usual time with spinning and 1.7 times
/// with sleeping (docs/performance.md). This setting is skipped when the environment has OMP_WAIT_POLICY or
/// GOMP_SPINCOUNT, or OMP_NUM_THREADS=1.
///
/// Third setting: the environment variable that deterministic GPU products need (settle_device_environment()).
void settle_process(char** argv);

/// Returns freed memory to the system (malloc_trim). Call it at most once a round, because later allocations then cause
/// page faults. Threads: any. Does nothing when the allocator is not glibc's.
void give_back_freed_memory();

}  // namespace evenkeel
