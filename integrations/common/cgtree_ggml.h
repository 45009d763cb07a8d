// The recordings of a CUDA backend of ggml: the functions called by the lines that apply.py adds to
// a program. Written in C++17, as ggml is.
#pragma once

#include <functional>
#include <memory>
#include <vector>

struct CUstream_st;  // cudaStream_t is a pointer to it.
struct ggml_cgraph;
struct ggml_tensor;

namespace cgtree_ggml {

class Recordings;

// Returns false if the environment has GGML_CUDA_CGTREE=0: then ggml makes its usual graphs.
bool is_enabled();

// Computes the graph on `stream`: replays a recording of an equal graph, or calls `evaluate`, which
// launches the nodes there, once or twice. The first call makes `recordings`, for the current
// device. Returns false after an error, which it logs.
//
// A graph whose nodes copy into a cache of keys and values writes to other addresses at each token.
// To keep the graph equal, these nodes read their destination from a table on the device, which has
// the addresses of the present call at each replay. evaluate() must call copy() for each node that
// copies.
bool compute(std::shared_ptr<Recordings>& recordings, CUstream_st* stream, const ggml_cgraph& graph,
             const std::function<void()>& evaluate);

// For a program whose kernels have a table already: `destinations` are the addresses at which all
// copying nodes write, in their order, and evaluate() is called with the table on the device, or
// null if there are none.
bool compute(std::shared_ptr<Recordings>& recordings, CUstream_st* stream, const ggml_cgraph& graph,
             const std::vector<char*>& destinations,
             const std::function<void(char** table)>& evaluate);

// Copies `from` to `to` if the address of that node is in the table of the graph being evaluated;
// returns whether it did. `recordings` may be null.
bool copy(const Recordings* recordings, CUstream_st* stream, const ggml_tensor& from,
          const ggml_tensor& to);
// The entry of the table for this copy, on the device; null if there is no entry. Used by copy().
char* const* entry_for(const Recordings* recordings, const ggml_tensor& from,
                       const ggml_tensor& to);

// Must be called when a pool of temporary buffers frees device memory: all recordings made before
// are dropped at the next calls.
void pool_was_freed() noexcept;

}  // namespace cgtree_ggml
