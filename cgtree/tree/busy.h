// Busy: held while a thread is inside a context; refuses a second one.
#pragma once

#include "base/error.h"
#include "cgtree/tree/tree_manager.h"

namespace cgtree {

class TreeManager::Busy {
 public:
  explicit Busy(TreeManager& manager) : gate_(manager.gate_) {
    if (!gate_.enter()) {
      throw ConcurrentUse(
          "this context is busy: another thread is inside it, or a step function called back; make "
          "one context per thread, or lock around it");
    }
    if (manager.any_removed_.load(std::memory_order_acquire)) [[unlikely]] {
      manager.drop_removed();
    }
  }
  ~Busy() { gate_.leave(); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  LaneGate& gate_;
};

}  // namespace cgtree
