// steps.cu for a C++ compiler: host bodies alone.
#include "examples/branching/steps.cu"  // NOLINT(bugprone-suspicious-include)
