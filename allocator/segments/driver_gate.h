// DriverGate: separates open captures from calls that they forbid.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "base/condition.h"
#include "base/mutex.h"

namespace cgtree {

// A free, a query or a record inside a capture invalidates the capture or becomes part of it. Such
// calls pass the gate; a capture holds it while it is open. There is one gate per device.
//
// Invariant: no call is inside while the gate is held and hold() has returned.
//
// Thread safety: all functions may be called from any thread.
class DriverGate {
 public:
  // `when_open` is called whenever the last hold has ended, on the thread that ended it.
  explicit DriverGate(std::function<void()> when_open = nullptr)
      : when_open_(std::move(when_open)) {}

  // Returns false while the gate is held: the call must be made later. If it returns true, leave()
  // must follow.
  [[nodiscard]] bool try_enter() noexcept;
  void leave() noexcept;

  // Returns once all calls inside have left. Holds add up. Requires: the thread is not inside.
  void hold() noexcept;
  // Returns true if it was the last hold.
  bool end_hold() noexcept;

  bool is_held() const noexcept;

 private:
  const std::function<void()> when_open_;
  mutable Mutex<LockRank::kLeaf> mutex_;  // guards all below
  Condition none_inside_;
  std::size_t inside_ = 0;
  std::size_t holds_ = 0;
};

// A GateEntry is one attempt to pass a gate, and leaves it at its end.
class GateEntry {
 public:
  explicit GateEntry(DriverGate& gate) noexcept : gate_(gate.try_enter() ? &gate : nullptr) {}
  ~GateEntry() {
    if (gate_ != nullptr) gate_->leave();
  }
  GateEntry(const GateEntry&) = delete;
  GateEntry& operator=(const GateEntry&) = delete;

  explicit operator bool() const noexcept { return gate_ != nullptr; }

 private:
  DriverGate* const gate_;
};

// While a DeferredFrees or a copy of it lives, no segment is freed on the device, and no event is
// recorded, queried or waited for. Segments that should have been freed meanwhile are freed when
// the last copy is destroyed. The gate must outlive it.
using DeferredFrees = std::shared_ptr<const void>;

}  // namespace cgtree
