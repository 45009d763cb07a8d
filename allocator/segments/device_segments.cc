// The segments of each device, shared by whoever uses it just now.
#include "allocator/segments/device_segments.h"

#include <map>
#include <mutex>

#include "interop/device/device.h"

namespace cgtree {
namespace {

std::unique_ptr<DeviceStreamEvents> events_of(Device device) {
  if (device_api(device).graphs() == nullptr) return nullptr;
  return std::make_unique<DeviceStreamEvents>(device);
}

// The process's, as the devices themselves are.
struct Registry {
  std::mutex mutex;
  std::map<Device, std::weak_ptr<DeviceSegments>> segments;  // guarded by mutex
};

Registry& registry() {
  static auto* const made = new Registry;  // outlives every static that uses it
  return *made;
}

}  // namespace

DeviceSegments::DeviceSegments(Device device, std::size_t max_bytes, Budget* process)
    : device_(device),
      source_(device),
      events_(events_of(device)),
      budget_(to_string(device), max_bytes, process),
      cache_(source_, &budget_, events_.get()) {
}

std::shared_ptr<DeviceSegments> DeviceSegments::shared(Device device) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<DeviceSegments>& known = all.segments[device];
  std::shared_ptr<DeviceSegments> segments = known.lock();
  if (segments == nullptr) known = segments = std::make_shared<DeviceSegments>(device);
  return segments;
}

}  // namespace cgtree
