// Keeps calls that an open capture forbids apart from open captures.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace cgtree {

// A free, a query or a record inside a capture invalidates it or becomes part of it. Calls of that
// kind pass the gate; whoever opens a capture holds it.
//
// Invariant: nobody is inside while the gate is held and hold() has returned.
//
// Threads: any.
class DriverGate {
 public:
  // False while it is held: the call must wait for another time. Else leave() must follow.
  [[nodiscard]] bool try_enter() noexcept;
  void leave() noexcept;

  // Returns once all those inside have left. Holds add up. Requires that the thread is not inside.
  void hold() noexcept;
  // Returns whether it was the last hold.
  bool end_hold() noexcept;

  bool is_held() const noexcept;

 private:
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable none_inside_;
  std::size_t inside_ = 0;
  std::size_t holds_ = 0;
};

// One try to get inside.
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

}  // namespace cgtree
