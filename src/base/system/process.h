/// \file  What a program settles about its process before anything else.
#pragma once

namespace evenkeel {

/// Call it first in main(), before there are threads.
///
/// Memory that is freed stays with the process. The system's own rule maps what is larger than 32 MiB anew each time,
/// which a training step of 2,048 tokens paid for with a fourteenth of its time in fresh pages (docs/performance.md).
///
/// Threads that wait sleep. By default they spin for milliseconds, and where another process wants the processor they
/// use up what the scheduler grants them: beside one busy process a step took 2.2 times its quiet time, and takes 1.7
/// (docs/performance.md). The library reads its settings when it is loaded, so the program begins again with them,
/// once; nothing happens where the environment says something of its own (OMP_WAIT_POLICY, GOMP_SPINCOUNT) or names one
/// thread (OMP_NUM_THREADS=1), which has nobody to wait for.
///
/// A GPU's products must find their setting in the environment too (base/system/device.h).
void settle_process(char** argv);

/// Gives all that lies free back to the system: for once a round, before much is asked for in other pieces than what
/// was freed. What is asked for next comes in fresh pages. Any thread; nothing where the allocator is not glibc's.
void give_back_freed_memory();

}  // namespace evenkeel
