// The names of the CUDA runtime that recordings of ggml's graphs use.
#pragma once

typedef struct CUstream_st* cudaStream_t;

inline int cudaGetDevice(int* device) {
  *device = 0;
  return 0;
}
