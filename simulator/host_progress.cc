// Reads the times of events, and puts kernels between the nodes of a graph.
#include "simulator/host_progress.h"

#include <optional>
#include <utility>

namespace cgtree::host {

Code HostProgress::create_timed_event(EventHandle* event) {
  return runtime_.call_that_may_block("create_timed_event", [&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto name = runtime_.event_handles.take([&] { return runtime_.next_handle(); });
    runtime_.events.emplace(name, HostEvent{.is_timed = true});
    *event = name;
    return Code::kSuccess;
  });
}

Code HostProgress::elapsed(EventHandle from, EventHandle to, std::chrono::nanoseconds* time) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    std::optional<HostTime> times[2];
    const EventHandle handles[] = {from, to};
    for (int i = 0; i < 2; ++i) {
      const auto found = runtime_.events.find(handles[i]);
      if (found == runtime_.events.end()) return Code::kInvalidResourceHandle;
      const HostEvent& event = found->second;
      if (!event.is_timed || !event.recorded || event.capture != nullptr) {
        return Code::kInvalidResourceHandle;
      }
      times[i] = event.operation == nullptr ? event.time : runtime_.queue->time(event.operation);
    }
    if (!times[0] || !times[1]) return Code::kNotReady;
    *time = *times[1] - *times[0];
    return Code::kSuccess;
  });
}

Code HostProgress::insert_kernel(GraphHandle graph, std::span<const NodeHandle> after,
                                 std::span<const NodeHandle> before, const KernelFunction& kernel,
                                 const LaunchDims& dims, KernelArguments arguments,
                                 NodeHandle* node) {
  return runtime_.call([&](const ThreadState&) {
    if (const Code code = check_launch(kernel, dims, arguments); !ok(code)) return code;
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.graphs.find(graph);
    if (found == runtime_.graphs.end()) return Code::kInvalidValue;
    const std::optional<NodeHandle> made =
        found->second->insert(KernelWork{kernel, dims, FrozenArguments(arguments)}, after, before);
    if (!made) return Code::kInvalidValue;
    *node = *made;
    return Code::kSuccess;
  });
}

}  // namespace cgtree::host
