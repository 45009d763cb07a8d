// Busy: held while a thread is inside a context; refuses a second one.
#pragma once

#include "base/error.h"
#include "cgtree/tree/tree_manager.h"

namespace cgtree {

class TreeManager::Busy {
 public:
  explicit Busy(TreeManager& manager) : busy_(manager.busy_) {
    if (busy_.exchange(true, std::memory_order_acquire)) {
      throw ConcurrentUse(
          "this context is busy: another thread is inside it, or a step function called back; make "
          "one context per thread, or lock around it");
    }
    if (manager.any_removed_.load(std::memory_order_acquire)) [[unlikely]] {
      manager.drop_removed();
    }
  }
  ~Busy() { busy_.store(false, std::memory_order_release); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>& busy_;
};

}  // namespace cgtree
