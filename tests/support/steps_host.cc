// The step functions for builds without nvcc.
#include "tests/support/steps.cu"
