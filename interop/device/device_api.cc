// The defaults of the functions that a device need not override.
#include "interop/device/device_api.h"

namespace cgtree {

bool DeviceAPI::look_for_device(int id) noexcept {
  const AttributeValue value = attribute(id, DeviceAttribute::kExists);
  const auto* const number = std::get_if<std::int64_t>(&value);
  if (number == nullptr || *number == 0) return false;
  if (id >= 0 && id < kMostSeen) seen_.fetch_or(std::uint64_t{1} << id, std::memory_order_relaxed);
  return true;
}

Code DeviceAPI::sync_stream_from_to(int id, StreamHandle from, StreamHandle to) {
  static_cast<void>(id);
  GraphAPI* const events = graphs();
  if (events == nullptr) return synchronize_stream(from);
  EventHandle event = EventHandle::kNull;
  if (const Code code = events->create_event(&event); !ok(code)) return code;
  Code code = events->record_event(event, from);
  if (ok(code)) code = events->wait_event(to, event);
  // The wait keeps what it needs of the event.
  const Code destroyed = events->destroy_event(event);
  return ok(code) ? destroyed : code;
}

}  // namespace cgtree
