// ProgressAPI: the optional capability of a device to tell how far its work has come, and when.
//
// The functions are CUDA's, one to one, and return CUDA's numbers (code.h). Out-parameters are
// written on success only.
//
// Thread safety: as of GraphAPI.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "interop/device/code.h"
#include "interop/device/graph_api.h"
#include "interop/device/kernel_function.h"

namespace cgtree {

// Implemented by a device that has events with times, and graphs that can be changed.
class ProgressAPI {
 public:
  virtual ~ProgressAPI() = default;

  // Makes an event that also knows when it has happened; all else is done with it as with an event
  // of GraphAPI::create_event().
  virtual Code create_timed_event(EventHandle* event) = 0;
  // Writes the time from one event to the other. Returns kNotReady while one is pending, and
  // kInvalidResourceHandle for one that has no time or was never recorded. Source:
  // cudaEventElapsedTime.
  virtual Code elapsed(EventHandle from, EventHandle to, std::chrono::nanoseconds* time) = 0;

  // Adds a kernel to a graph, which runs behind all of `after` and in front of all of `before`.
  // Executable graphs that were made of the graph stay as they are. Requires: the device of the
  // graph is current, the capture of the graph has ended, and in GraphAPI's order of its work no
  // node of `before` comes first.
  virtual Code insert_kernel(GraphHandle graph, std::span<const NodeHandle> after,
                             std::span<const NodeHandle> before, const KernelFunction& kernel,
                             const LaunchDims& dims, KernelArguments arguments,
                             NodeHandle* node) = 0;
};

}  // namespace cgtree
