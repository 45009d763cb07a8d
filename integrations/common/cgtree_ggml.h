// The recordings of a CUDA backend of ggml: what the lines call that apply.py adds to a program. In
// C++17, as ggml is.
#pragma once

#include <functional>
#include <memory>
#include <vector>

struct CUstream_st;  // cudaStream_t is a pointer to it.
struct ggml_cgraph;
struct ggml_tensor;

namespace cgtree_ggml {

class Recordings;

// Returns false where the environment has GGML_CUDA_CGTREE=0: then ggml makes graphs as it does.
bool is_enabled();

// Computes the graph on `stream`: replays a recording of an equal one, or calls `evaluate`, which
// launches the nodes there, once or twice. The first call makes `recordings`, for the current
// device. Returns false after an error, which it logs.
//
// A graph whose nodes copy into a cache of keys and values writes elsewhere at each token. So that
// it is still an equal one, these nodes read where to write from a table on the device, which each
// replay has with the addresses of its own call. evaluate() must call copy() for each node that
// copies.
bool compute(std::shared_ptr<Recordings>& recordings, CUstream_st* stream, const ggml_cgraph& graph,
             const std::function<void()>& evaluate);

// For a program whose kernels have such a table already: `destinations` are the addresses that all
// nodes write at which copy, in their order, and evaluate() is called with the table on the device,
// or null if there are none.
bool compute(std::shared_ptr<Recordings>& recordings, CUstream_st* stream, const ggml_cgraph& graph,
             const std::vector<char*>& destinations,
             const std::function<void(char** table)>& evaluate);

// Copies `from` to `to` if that is one of the nodes whose addresses are in the table of the graph
// that is evaluated; returns whether it did. `recordings` may be null.
bool copy(const Recordings* recordings, CUstream_st* stream, const ggml_tensor& from,
          const ggml_tensor& to);
// The entry of the table for this copy, on the device; null if it has none. Used by copy().
char* const* entry_for(const Recordings* recordings, const ggml_tensor& from,
                       const ggml_tensor& to);

// Must be called when a pool of temporary buffers gives device memory away: all recordings made
// before are dropped at the next calls.
void pool_was_freed() noexcept;

}  // namespace cgtree_ggml
