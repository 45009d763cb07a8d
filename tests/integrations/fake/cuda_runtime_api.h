// The one type of the CUDA runtime that the recordings of ggml's graphs name.
#pragma once

typedef struct CUstream_st* cudaStream_t;
