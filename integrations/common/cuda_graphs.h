// The recordings of a CUDA backend of ggml: what the lines call that apply.py adds to a program. In
// C++17, as ggml is.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

struct ggml_cgraph;

namespace cgtree_ggml {

class Recordings;

// Returns false where the environment has GGML_CUDA_CGTREE=0: then ggml makes graphs as it does.
bool is_enabled();

// Computes the graph on `stream`: replays a recording of an equal one, or calls `evaluate`, which
// launches the nodes there, once or twice. The first call makes `recordings`, whose stream it must
// be from then on. Returns false after an error, which it logs.
//
// `destinations` are the addresses at which the nodes of the graph that copy write, if there are
// any and their kernels read them from a table. A recording is then used for others, too:
// `evaluate` is called with the table on the device, which each replay has with the addresses of
// its own call. Otherwise with null.
bool compute(std::shared_ptr<Recordings>& recordings, cudaStream_t stream, const ggml_cgraph& graph,
             const std::vector<char*>& destinations,
             const std::function<void(char** table)>& evaluate);

// Must be called when a pool of temporary buffers gives device memory away: all recordings made
// before are dropped at the next calls.
void pool_was_freed() noexcept;

}  // namespace cgtree_ggml
