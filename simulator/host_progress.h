// HostProgress: events with times, and kernels in graphs, of the host device.
#pragma once

#include "interop/device/progress_api.h"
#include "simulator/runtime.h"

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

 private:
  Runtime& runtime_;
};

}  // namespace cgtree::host
