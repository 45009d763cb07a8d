// HostSlot: a kind of device of its own; tests put one host device after the other behind it.
#pragma once

#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree::testing {

// A registered device lives as long as the process; the device behind the slot does not.
class HostSlot {
 public:
  // Registers it on first use.
  static HostSlot& instance();

  Device device() const noexcept;
  // Requires that nothing made before is used afterwards, and that `device` outlives its use.
  void put(DeviceAPI& device) noexcept;

 private:
  HostSlot();
};

}  // namespace cgtree::testing
