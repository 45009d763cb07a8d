// The drawing kernel, compiled without nvcc.
#include "tests/c_api/draw_kernels.cu"
