// Reads the times of events, and puts kernels and events between the nodes of a graph.
#include "interop/device/host/host_progress.h"

#include <memory>
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
      if (event.node_time != nullptr) {
        const HostTime::duration since(event.node_time->load(std::memory_order_acquire));
        if (since.count() == 0) return Code::kInvalidResourceHandle;
        times[i] = HostTime(since);
        continue;
      }
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
    return insert(graph, KernelWork{kernel, dims, FrozenArguments(arguments)}, after, before, node);
  });
}

Code HostProgress::insert_event(GraphHandle graph, std::span<const NodeHandle> after,
                                std::span<const NodeHandle> before, EventHandle event,
                                NodeHandle* node) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.events.find(event);
    if (found == runtime_.events.end()) return Code::kInvalidResourceHandle;
    const EventWork work{std::make_shared<std::atomic<std::int64_t>>(0)};
    const Code code = insert(graph, work, after, before, node);
    if (ok(code)) found->second.node_time = work.time;
    return code;
  });
}

Code HostProgress::insert(GraphHandle graph, Work work, std::span<const NodeHandle> after,
                          std::span<const NodeHandle> before, NodeHandle* node) {
  const auto found = runtime_.graphs.find(graph);
  if (found == runtime_.graphs.end()) return Code::kInvalidValue;
  const std::optional<NodeHandle> made = found->second->insert(std::move(work), after, before);
  if (!made) return Code::kInvalidValue;
  *node = *made;
  return Code::kSuccess;
}

}  // namespace cgtree::host
