// DeviceScope: makes a device current on this thread, and the one before again at its end.
#pragma once

#include "interop/device/device_api.h"

namespace cgtree {

// For work that a library launches on the current device, whatever its stream's.
class DeviceScope {
 public:
  // Throws DeviceError.
  DeviceScope(DeviceAPI& api, int id) : api_(api) {
    check(api.current_device(&before_), "ask for the current device");
    if (before_ == id) return;
    check(api.set_device(id), "set the device");
    is_changed_ = true;
  }
  ~DeviceScope() {
    if (is_changed_) static_cast<void>(api_.set_device(before_));
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  DeviceAPI& api_;
  int before_ = 0;
  bool is_changed_ = false;
};

}  // namespace cgtree
