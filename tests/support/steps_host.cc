// The step functions where there is no nvcc.
#include "tests/support/steps.cu"
