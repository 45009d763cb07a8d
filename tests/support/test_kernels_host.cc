// The test kernels for a build without CUDA: their host bodies.
#include "tests/support/test_kernels.cu"  // NOLINT(bugprone-suspicious-include)
