// Events and work: what a stream is asked to do, now or in the graph that it captures.
#include <array>
#include <utility>

#include "interop/device/host/host_graphs.h"

namespace cgtree::host {

Code HostGraphs::create_event(EventHandle* event) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto name = static_cast<EventHandle>(runtime_.next_handle());
    runtime_.events.emplace(name, HostEvent{});
    *event = name;
    return Code::kSuccess;
  });
}

Code HostGraphs::destroy_event(EventHandle event) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    return runtime_.events.erase(event) == 1 ? Code::kSuccess : Code::kInvalidResourceHandle;
  });
}

Code HostGraphs::record_event(EventHandle handle, StreamHandle stream_handle) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto event = runtime_.events.find(handle);
    const auto stream = runtime_.find_stream(stream_handle);
    if (event == runtime_.events.end() || stream == nullptr) return Code::kInvalidResourceHandle;
    if (const Code code = runtime_.captures.admit_work(*stream); !ok(code)) return code;
    runtime_.captures.record(*stream, event->second);
    // Where nothing is queued, all that this thread saw submitted has run.
    const bool is_queued = runtime_.queue != nullptr && stream->capture == nullptr;
    event->second.operation = is_queued ? runtime_.enqueue(*stream, nullptr) : nullptr;
    return Code::kSuccess;
  });
}

Code HostGraphs::admit_wait(EventHandle handle, const ThreadState& thread,
                            OperationPtr* operation) {
  const std::lock_guard lock(runtime_.mutex);
  const auto event = runtime_.events.find(handle);
  if (event == runtime_.events.end()) return Code::kInvalidResourceHandle;
  *operation = event->second.operation;
  return runtime_.captures.admit_wait(event->second, thread.caller());
}

Code HostGraphs::query_event(EventHandle handle) {
  return runtime_.answer([&](const ThreadState& thread) {
    OperationPtr operation;
    if (const Code code = admit_wait(handle, thread, &operation); !ok(code)) return code;
    if (operation == nullptr) return Code::kSuccess;
    runtime_.queue->nudge(WorkQueue::Nudge::kAsked);
    return runtime_.queue->is_done(operation) ? Code::kSuccess : Code::kNotReady;
  });
}

Code HostGraphs::synchronize_event(EventHandle handle) {
  return runtime_.answer([&](const ThreadState& thread) {
    OperationPtr operation;
    const Code code = admit_wait(handle, thread, &operation);
    return ok(code) ? runtime_.synchronize(operation) : code;
  });
}

Code HostGraphs::wait_event(StreamHandle stream_handle, EventHandle handle) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto event = runtime_.events.find(handle);
    const auto stream = runtime_.find_stream(stream_handle);
    if (event == runtime_.events.end() || stream == nullptr) return Code::kInvalidResourceHandle;
    const Code code = runtime_.captures.wait(stream, event->second);
    const OperationPtr& operation = event->second.operation;
    if (ok(code) && stream->capture == nullptr && operation != nullptr) {
      runtime_.enqueue(*stream, nullptr, {operation});
    }
    return code;
  });
}

Code HostGraphs::launch_kernel(StreamHandle stream_handle, const KernelFunction& kernel,
                               const LaunchDims& dims, KernelArguments arguments) {
  return runtime_.answer([&](const ThreadState&) {
    if (const Code code = check_launch(kernel, dims, arguments); !ok(code)) {
      const std::lock_guard lock(runtime_.mutex);
      const auto stream = runtime_.find_stream(stream_handle);
      return stream == nullptr ? code : runtime_.captures.refuse_launch(*stream, code);
    }
    // Run at once, the body reads the caller's arguments where they are.
    std::array<const void*, kMaxKernelArguments> table;
    for (std::size_t i = 0; i < arguments.size(); ++i)
      table[i] = arguments[i].data;
    return runtime_.submit(
        stream_handle, [&] { return run_kernel(kernel, dims, table.data()); },
        [&] {
          return KernelWork{kernel, dims, FrozenArguments(arguments)};
        });
  });
}

Code HostGraphs::memset(StreamHandle stream, void* destination, std::uint8_t value,
                        std::size_t bytes) {
  return runtime_.answer([&](const ThreadState&) {
    if (bytes == 0) return Code::kSuccess;  // not even a node, as in CUDA
    if (destination == nullptr) return Code::kInvalidValue;
    const MemsetWork work{destination, value, bytes};
    return runtime_.submit(
        stream, [&] { return run(work); }, [&] { return work; });
  });
}

Code HostGraphs::launch_host_function(StreamHandle stream, void (*function)(void*), void* data) {
  return runtime_.answer([&](const ThreadState&) {
    if (function == nullptr) return Code::kInvalidValue;
    const HostWork work{function, data};
    return runtime_.submit(
        stream, [&] { return run(work); }, [&] { return work; });
  });
}

}  // namespace cgtree::host
