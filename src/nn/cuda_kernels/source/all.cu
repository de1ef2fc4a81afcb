#include "norm.cu"
#include "routing.cu"
#include "rows.cu"
#include "swiglu.cu"
