// The kernels, compiled for the processor.
#include "fibers.h"
#include "nn/cuda_kernels/source/all.cu"
