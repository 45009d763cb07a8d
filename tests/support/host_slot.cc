// One forwarding device, registered once.
#include "tests/support/host_slot.h"

#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "simulator/host_device.h"
#include "tests/support/forwarding_device.h"

namespace cgtree::testing {
namespace {

constexpr auto kType = static_cast<DeviceType>(static_cast<int>(DeviceType::kFirstUserType) + 14);

ForwardingDevice& slot() {
  static auto* const device = new ForwardingDevice(host_device_api(), *new CallHook);
  return *device;
}

}  // namespace

HostSlot& HostSlot::instance() {
  static auto* const instance = new HostSlot;
  return *instance;
}

HostSlot::HostSlot() {
  register_device_api(kType, slot());
}

Device HostSlot::device() const noexcept {
  return {kType, 0};
}

void HostSlot::put(DeviceAPI& device) noexcept {
  slot().set_target(device);
}

}  // namespace cgtree::testing
