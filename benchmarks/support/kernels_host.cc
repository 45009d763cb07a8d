// The trivial kernel where there is no nvcc.
#include "benchmarks/support/kernels.cu"
