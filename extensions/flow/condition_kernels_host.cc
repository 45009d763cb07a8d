// Compiles the kernels for the host device alone, where there is no nvcc.
#include "extensions/flow/condition_kernels.cu"
