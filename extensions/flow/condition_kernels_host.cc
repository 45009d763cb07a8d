// Compiles the kernels for the host device only, where there is no nvcc.
#include "extensions/flow/condition_kernels.cu"
