// HostProgress: events with times, and kernels and events in graphs, of the host device.
#pragma once

#include "interop/device/host/runtime.h"
#include "interop/device/progress_api.h"

namespace cgtree::host {

// Thread safety: any thread.
class HostProgress final : public ProgressAPI {
 public:
  explicit HostProgress(Runtime& runtime) noexcept : runtime_(runtime) {}

  Code create_timed_event(EventHandle* event) override;
  Code elapsed(EventHandle from, EventHandle to, std::chrono::nanoseconds* time) override;
  Code insert_kernel(GraphHandle graph, std::span<const NodeHandle> after,
                     std::span<const NodeHandle> before, const KernelFunction& kernel,
                     const LaunchDims& dims, KernelArguments arguments, NodeHandle* node) override;
  Code insert_event(GraphHandle graph, std::span<const NodeHandle> after,
                    std::span<const NodeHandle> before, EventHandle event,
                    NodeHandle* node) override;

 private:
  // Requires: the mutex of the runtime is held.
  Code insert(GraphHandle graph, Work work, std::span<const NodeHandle> after,
              std::span<const NodeHandle> before, NodeHandle* node);

  Runtime& runtime_;
};

}  // namespace cgtree::host
