// kernels.cu for a C++ compiler, which leaves out the CUDA bodies.
#include "examples/serve/kernels.cu"  // NOLINT(bugprone-suspicious-include)
