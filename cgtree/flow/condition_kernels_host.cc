// Compiles the kernels for the host device alone, where there is no nvcc.
#include "cgtree/flow/condition_kernels.cu"
