// Compiles the fills for the host device alone, where there is no nvcc.
#include "interop/random/random_kernels.cu"
