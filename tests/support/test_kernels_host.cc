// The test kernels for builds without CUDA: their host bodies.
#include "tests/support/test_kernels.cu"  // NOLINT(bugprone-suspicious-include)
