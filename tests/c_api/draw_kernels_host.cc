// The drawing kernel where there is no nvcc.
#include "tests/c_api/draw_kernels.cu"
