// Events and work: what a stream is asked to do, now or in the graph that it captures.
#include <array>
#include <utility>

#include "interop/host/host_graphs.h"

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
    // Outside of a capture all that this thread saw submitted has run, so the event is complete.
    runtime_.captures.record(*stream, event->second);
    return Code::kSuccess;
  });
}

Code HostGraphs::query_event(EventHandle handle) {
  return runtime_.answer([&](const ThreadState& thread) {
    const std::lock_guard lock(runtime_.mutex);
    const auto event = runtime_.events.find(handle);
    if (event == runtime_.events.end()) return Code::kInvalidResourceHandle;
    return runtime_.captures.admit_wait(event->second, thread.caller());
  });
}

Code HostGraphs::synchronize_event(EventHandle handle) {
  return query_event(handle);  // never pending
}

Code HostGraphs::wait_event(StreamHandle stream_handle, EventHandle handle) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto event = runtime_.events.find(handle);
    const auto stream = runtime_.find_stream(stream_handle);
    if (event == runtime_.events.end() || stream == nullptr) return Code::kInvalidResourceHandle;
    return runtime_.captures.wait(stream, event->second);
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
