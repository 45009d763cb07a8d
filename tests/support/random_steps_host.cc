// The drawing kernel for builds without nvcc.
#include "tests/support/random_steps.cu"
