// The functions that every device has: attributes, memory, copies and streams.
#include "simulator/host_device.h"

#include <atomic>
#include <optional>
#include <thread>

#include "interop/device/device_api.h"
#include "simulator/host_graphs.h"
#include "simulator/memory.h"
#include "simulator/runtime.h"

namespace cgtree {
namespace host {
namespace {

// Thread safety: any thread.
class EmbeddedDevice final : public DeviceAPI {
 public:
  EmbeddedDevice(const HostDeviceOptions& options, std::uint64_t number)
      : runtime_(options, number) {}

  std::string_view name() const noexcept override { return "host"; }
  AttributeValue attribute(int id, DeviceAttribute attribute) noexcept override;

  Code set_device(int id) override { return exists(id) ? Code::kSuccess : no_such_device(); }
  Code alloc_data_space(int id, std::size_t bytes, void** data) override {
    return exists(id) ? allocate(MemoryKind::kData, id, bytes, data) : no_such_device();
  }
  Code free_data_space(int id, void* data) override {
    return exists(id) ? release(MemoryKind::kData, id, data) : no_such_device();
  }
  Code alloc_pinned(std::size_t bytes, void** data) override {
    return allocate(MemoryKind::kPinned, 0, bytes, data);
  }
  Code free_pinned(void* data) override { return release(MemoryKind::kPinned, std::nullopt, data); }
  Code pointer_attributes(const void* pointer, PointerAttributes* attributes) override {
    *attributes = runtime_.memory.allocation_of(pointer).attributes;
    return Code::kSuccess;
  }
  Code allocation_of(const void* pointer, DeviceAllocation* allocation) override {
    *allocation = runtime_.memory.allocation_of(pointer);
    return Code::kSuccess;
  }
  Code mapping_granularity(int id, std::size_t* bytes) override {
    return runtime_.memory.granularity(id, bytes);
  }
  Code reserve_addresses(int id, std::size_t bytes, void** address) override {
    return runtime_.memory.reserve(id, bytes, address);
  }
  Code free_addresses(void* address, std::size_t bytes) override {
    return runtime_.memory.free_reserved(address, bytes);
  }
  Code create_memory(int id, std::size_t bytes, PhysicalMemory* memory) override {
    return runtime_.memory.create(id, bytes, memory);
  }
  Code release_memory(PhysicalMemory memory) override { return runtime_.memory.release(memory); }
  Code map_memory(int id, void* address, std::size_t bytes, PhysicalMemory memory) override {
    return runtime_.memory.map(id, address, bytes, memory);
  }
  Code unmap_memory(void* address, std::size_t bytes) override {
    return runtime_.memory.unmap(address, bytes);
  }
  Code copy(StreamHandle stream, void* destination, const void* source, std::size_t bytes) override;
  // All ids share the memory of the machine.
  Code copy_peer(StreamHandle stream, void* destination, int destination_id, const void* source,
                 int source_id, std::size_t bytes) override {
    if (!exists(destination_id) || !exists(source_id)) return no_such_device();
    return copy(stream, destination, source, bytes);
  }

  Code create_stream(int id, StreamKind kind, StreamHandle* stream) override;
  Code destroy_stream(StreamHandle stream) override;
  Code synchronize_stream(StreamHandle stream) override;
  Code query_stream(StreamHandle stream) override;
  Code stream_number(int, StreamHandle stream, std::uint64_t* number) override {
    return ask(stream, [&](const HostStream& found) { *number = found.number; });
  }
  Code stream_device(StreamHandle stream, int* id) override {
    return ask(stream, [&](const HostStream& found) { *id = found.device; });
  }
  Code synchronize_device(int id) override;

  GraphAPI* graphs() noexcept override { return &graphs_; }

 private:
  bool exists(int id) const noexcept { return id >= 0 && id < runtime_.devices; }
  Code no_such_device() { return runtime_.refuse(Code::kInvalidDevice); }
  Code allocate(MemoryKind kind, int id, std::size_t bytes, void** data);
  Code release(MemoryKind kind, std::optional<int> id, void* data);
  template <typename Answer>
  Code ask(StreamHandle handle, Answer answer) {
    return runtime_.call_on(handle, [&](const auto& stream, const ThreadState&) {
      const Code code = runtime_.captures.admit_question(*stream);
      if (ok(code)) answer(*stream);
      return code;
    });
  }
  Code admit_unsafe(const ThreadState& thread) {
    const std::lock_guard lock(runtime_.mutex);
    return runtime_.captures.admit_unsafe(thread);
  }
  Code admit_wait(StreamHandle handle, const ThreadState& thread,
                  std::shared_ptr<HostStream>* stream);

  Runtime runtime_;
  HostGraphs graphs_{runtime_};
};

AttributeValue EmbeddedDevice::attribute(int id, DeviceAttribute attribute) noexcept {
  if (attribute == DeviceAttribute::kExists) return std::int64_t{exists(id)};
  if (!exists(id)) return std::monostate{};
  switch (attribute) {
    case DeviceAttribute::kName:
      return std::string("cgtree host device");
    case DeviceAttribute::kTotalMemory:
      return static_cast<std::int64_t>(runtime_.memory.total());
    case DeviceAttribute::kFreeMemory:
      return static_cast<std::int64_t>(runtime_.memory.free());
    case DeviceAttribute::kMultiProcessors:
      return std::int64_t{std::thread::hardware_concurrency()};
    case DeviceAttribute::kDriverVersion:
      return std::int64_t{0};
    case DeviceAttribute::kSupportsStreamCapture:
    case DeviceAttribute::kSupportsGraphUpdate:
    case DeviceAttribute::kSupportsConditionalNodes:
    case DeviceAttribute::kSupportsMapping:
    case DeviceAttribute::kSupportsProgress:
    case DeviceAttribute::kSupportsMemoryPools:
      return std::int64_t{1};
    default:
      return std::monostate{};
  }
}

Code EmbeddedDevice::allocate(MemoryKind kind, int id, std::size_t bytes, void** data) {
  return runtime_.call_that_may_block("allocate", [&](const ThreadState& thread) {
    const Code code = admit_unsafe(thread);
    return ok(code) ? runtime_.memory.allocate(kind, id, bytes, data) : code;
  });
}

Code EmbeddedDevice::release(MemoryKind kind, std::optional<int> id, void* data) {
  return runtime_.call_that_may_block("release", [&](const ThreadState& thread) {
    // 900 has precedence, even for null and for a pointer of another allocator.
    if (const Code code = admit_unsafe(thread); !ok(code)) return code;
    runtime_.settle(id);
    return runtime_.memory.release(kind, data);
  });
}

Code EmbeddedDevice::copy(StreamHandle stream, void* destination, const void* source,
                          std::size_t bytes) {
  return runtime_.call_that_may_block("copy", [&](const ThreadState&) {
    if (bytes == 0) return Code::kSuccess;  // not even a node, as in CUDA
    if (destination == nullptr || source == nullptr) return Code::kInvalidValue;
    return runtime_.submit(stream, CopyWork{destination, source, bytes});
  });
}

Code EmbeddedDevice::create_stream(int id, StreamKind kind, StreamHandle* stream) {
  return runtime_.call_that_may_block("create_stream", [&](const ThreadState&) {
    if (!exists(id)) return Code::kInvalidDevice;
    const std::lock_guard lock(runtime_.mutex);
    const auto name = runtime_.stream_handles.take([&] { return runtime_.next_handle(); });
    runtime_.streams.emplace(name, runtime_.make_stream(name, id, kind));
    *stream = name;
    return Code::kSuccess;
  });
}

Code EmbeddedDevice::destroy_stream(StreamHandle handle) {
  return runtime_.call_that_may_block("destroy_stream", [&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.streams.find(handle);
    if (found == runtime_.streams.end()) return Code::kInvalidResourceHandle;
    runtime_.captures.forget(*found->second);
    runtime_.streams.erase(found);  // running work holds it until it ends
    runtime_.stream_handles.give_back(handle);
    return Code::kSuccess;
  });
}

Code EmbeddedDevice::admit_wait(StreamHandle handle, const ThreadState& thread,
                                std::shared_ptr<HostStream>* stream) {
  const std::lock_guard lock(runtime_.mutex);
  *stream = runtime_.find_stream(handle);
  if (*stream == nullptr) return Code::kInvalidResourceHandle;
  return runtime_.captures.admit_wait(**stream, thread);
}

Code EmbeddedDevice::synchronize_stream(StreamHandle handle) {
  return runtime_.call_that_may_block("synchronize_stream", [&](const ThreadState& thread) {
    std::shared_ptr<HostStream> stream;
    if (const Code code = admit_wait(handle, thread, &stream); !ok(code)) return code;
    return runtime_.synchronize(*stream);
  });
}

Code EmbeddedDevice::query_stream(StreamHandle handle) {
  return runtime_.call_that_may_block("query_stream", [&](const ThreadState& thread) {
    std::shared_ptr<HostStream> stream;
    if (const Code code = admit_wait(handle, thread, &stream); !ok(code)) return code;
    return runtime_.is_idle(*stream) ? Code::kSuccess : Code::kNotReady;
  });
}

Code EmbeddedDevice::synchronize_device(int id) {
  return runtime_.call_that_may_block("synchronize_device", [&](const ThreadState& thread) {
    if (!exists(id)) return Code::kInvalidDevice;
    {
      const std::lock_guard lock(runtime_.mutex);
      if (const Code code = runtime_.captures.admit_wait(id, thread); !ok(code)) return code;
    }
    return runtime_.synchronize(id);
  });
}

}  // namespace
}  // namespace host

DeviceAPI& host_device_api() noexcept {
  // Never destroyed: threads may outlive static objects.
  static auto* const device = new host::EmbeddedDevice(HostDeviceOptions{}, /*number=*/0);
  return *device;
}

std::unique_ptr<DeviceAPI> make_host_device(const HostDeviceOptions& options) {
  static std::atomic<std::uint64_t> made{0};
  return std::make_unique<host::EmbeddedDevice>(options, ++made);
}

}  // namespace cgtree
