// A cudaStream_t as a StreamRef, and back, without CUDA's headers: cudaStream_t is CUstream_st*.
#pragma once

#include "interop/device/stream.h"

struct CUstream_st;

namespace cgtree {

// Borrows a stream of CUDA: cgtree::StreamScope scope(cgtree::stream_of(stream)). The default
// streams, such as nullptr, are those of the thread's current device. Throws InvalidArgument
// without a GPU; DeviceError.
StreamRef stream_of(CUstream_st* stream);

// Returns the stream as a cudaStream_t, for launches in step functions:
//   kernel<<<blocks, threads, 0, cgtree::cuda_stream(cgtree::current_stream())>>>(...);
// Throws InvalidArgument for a null stream, and for a stream of another device than a GPU.
CUstream_st* cuda_stream(StreamRef stream);

}  // namespace cgtree
