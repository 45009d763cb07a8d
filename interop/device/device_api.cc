// Defaults of DeviceAPI and GraphAPI, for kinds of devices that lack a capability.
#include "interop/device/device_api.h"

namespace cgtree {

bool DeviceAPI::supports(int id, DeviceAttribute attribute) noexcept {
  const AttributeValue value = this->attribute(id, attribute);
  const auto* const number = std::get_if<std::int64_t>(&value);
  return number != nullptr && *number != 0;
}

bool DeviceAPI::look_for_device(int id) noexcept {
  if (!supports(id, DeviceAttribute::kExists)) return false;
  if (id >= 0 && id < kMostSeen) seen_.fetch_or(std::uint64_t{1} << id, std::memory_order_relaxed);
  return true;
}

std::string DeviceAPI::why_absent(int) {
  return "there is no device of this number";
}

Code DeviceAPI::set_device(int) {
  return Code::kSuccess;
}

Code DeviceAPI::current_device(int* id) {
  *id = 0;
  return Code::kSuccess;
}

Code DeviceAPI::pointer_attributes(const void*, PointerAttributes*) {
  return Code::kNotSupported;
}

Code DeviceAPI::allocation_of(const void*, DeviceAllocation*) {
  return Code::kNotSupported;
}

Code DeviceAPI::mapping_granularity(int, std::size_t*) {
  return Code::kNotSupported;
}

Code DeviceAPI::reserve_addresses(int, std::size_t, void**) {
  return Code::kNotSupported;
}

Code DeviceAPI::free_addresses(void*, std::size_t) {
  return Code::kNotSupported;
}

Code DeviceAPI::create_memory(int, std::size_t, PhysicalMemory*) {
  return Code::kNotSupported;
}

Code DeviceAPI::release_memory(PhysicalMemory) {
  return Code::kNotSupported;
}

Code DeviceAPI::map_memory(int, void*, std::size_t, PhysicalMemory) {
  return Code::kNotSupported;
}

Code DeviceAPI::unmap_memory(void*, std::size_t) {
  return Code::kNotSupported;
}

Code DeviceAPI::copy_peer(StreamHandle stream, void* destination, int, const void* source, int,
                          std::size_t bytes) {
  return copy(stream, destination, source, bytes);
}

Code DeviceAPI::stream_number(int, StreamHandle, std::uint64_t*) {
  return Code::kNotSupported;
}

Code DeviceAPI::stream_device(StreamHandle, int*) {
  return Code::kNotSupported;
}

Code DeviceAPI::stream_partition(StreamHandle, std::uint64_t* partition) {
  *partition = 0;
  return Code::kSuccess;
}

Code DeviceAPI::sync_stream_from_to(int, StreamHandle from, StreamHandle to) {
  GraphAPI* const events = graphs();
  if (events == nullptr) return synchronize_stream(from);
  EventHandle event = EventHandle::kNull;
  if (const Code code = events->create_event(&event); !ok(code)) return code;
  Code code = events->record_event(event, from);
  if (ok(code)) code = events->wait_event(to, event);
  // An event may be destroyed while a stream waits for it.
  const Code destroyed = events->destroy_event(event);
  return ok(code) ? destroyed : code;
}

Code GraphAPI::read_nodes(GraphHandle, std::vector<NodeContents>*) {
  return Code::kNotSupported;
}

Code GraphAPI::allocate_in_order(StreamHandle, std::size_t, void**) {
  return Code::kNotSupported;
}

Code GraphAPI::free_in_order(StreamHandle, void*) {
  return Code::kNotSupported;
}

Code GraphAPI::instantiate_freeing(GraphHandle, ExecHandle*) {
  return Code::kNotSupported;
}

Code GraphAPI::prepare_patch(NodeHandle, NodePatch*) {
  return Code::kNotSupported;
}

Code GraphAPI::set_node(ExecHandle, const NodePatch&) {
  return Code::kNotSupported;
}

Code GraphAPI::enable_node(ExecHandle, NodeHandle, bool) {
  return Code::kNotSupported;
}

bool GraphAPI::are_alike(GraphHandle, GraphHandle) {
  return false;
}

Code GraphAPI::create_condition(GraphHandle, ConditionHandle*) {
  return Code::kNotSupported;
}

Code GraphAPI::add_conditional(GraphHandle, std::span<const NodeHandle>, ConditionHandle,
                               ConditionalKind, std::size_t, NodeHandle*,
                               std::vector<GraphHandle>*) {
  return Code::kNotSupported;
}

Code GraphAPI::begin_capture_to(StreamHandle, GraphHandle, CaptureMode) {
  return Code::kNotSupported;
}

Code GraphAPI::set_capture_dependencies(StreamHandle, std::span<const NodeHandle>) {
  return Code::kNotSupported;
}

Code GraphAPI::create_timed_event(EventHandle*) {
  return Code::kNotSupported;
}

Code GraphAPI::elapsed(EventHandle, EventHandle, std::chrono::nanoseconds*) {
  return Code::kNotSupported;
}

Code GraphAPI::insert_kernel(GraphHandle, std::span<const NodeHandle>, std::span<const NodeHandle>,
                             const KernelFunction&, const LaunchDims&, KernelArguments,
                             NodeHandle*) {
  return Code::kNotSupported;
}

}  // namespace cgtree
