// The fills where there is no nvcc.
#include "interop/random_kernels.cu"
