// HostSlot: a registered device whose implementation tests may replace by one host device after
// another.
#pragma once

#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree::testing {

// A registered device lives as long as the process; the host device behind it does not.
class HostSlot {
 public:
  // Registers it on first use.
  static HostSlot& instance();

  Device device() const noexcept;
  // Requires: objects made before are not used afterwards, and `device` outlives its use.
  void put(DeviceAPI& device) noexcept;

 private:
  HostSlot();
};

}  // namespace cgtree::testing
