// The drawing kernel where there is no nvcc.
#include "tests/support/random_steps.cu"
