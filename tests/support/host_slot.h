// HostSlot: a kind of device of its own, behind which a test puts one host device after the other.
#pragma once

#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree::testing {

// A registered device lives as long as the process; what is put behind this one does not.
class HostSlot {
 public:
  // Registers it on first use.
  static HostSlot& instance();

  Device device() const noexcept;
  // Nothing made before may be used afterwards. `device` must outlive its use.
  void put(DeviceAPI& device) noexcept;

 private:
  HostSlot();
};

}  // namespace cgtree::testing
