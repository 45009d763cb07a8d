// Counts the calls inside a gate and the captures that hold it.
#include "allocator/segments/driver_gate.h"

#include "base/check.h"

namespace cgtree {

bool DriverGate::try_enter() noexcept {
  const std::lock_guard lock(mutex_);
  if (holds_ > 0) return false;
  ++inside_;
  return true;
}

void DriverGate::leave() noexcept {
  const std::lock_guard lock(mutex_);
  CGTREE_CHECK(inside_ > 0);
  if (--inside_ == 0) none_inside_.notify_all();
}

void DriverGate::hold() noexcept {
  std::unique_lock lock(mutex_);
  ++holds_;
  none_inside_.wait(lock, [&] { return inside_ == 0; });
}

bool DriverGate::end_hold() noexcept {
  {
    const std::lock_guard lock(mutex_);
    CGTREE_CHECK(holds_ > 0);
    if (--holds_ > 0) return false;
  }
  if (when_open_) when_open_();
  return true;
}

bool DriverGate::is_held() const noexcept {
  const std::lock_guard lock(mutex_);
  return holds_ > 0;
}

}  // namespace cgtree
