// kernels.cu for a C++ compiler: host bodies alone.
#include "examples/serve/kernels.cu"  // NOLINT(bugprone-suspicious-include)
