// CGTREE_HOST_DEVICE: marks what kernels call, whichever compiler reads it.
#pragma once

#ifdef __CUDACC__
#define CGTREE_HOST_DEVICE __host__ __device__
#else
#define CGTREE_HOST_DEVICE
#endif
