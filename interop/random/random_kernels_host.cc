// The fills where there is no nvcc.
#include "interop/random/random_kernels.cu"
