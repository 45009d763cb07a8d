// AppendTable: a table of objects that a program registers, such as code generators. Entries are
// added and found by name, and never removed.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string_view>

namespace cgtree {

// T has a member `name`. The table is constant-initialized, to exist before any constructor runs. A
// found entry lives as long as the process.
//
// Thread safety: any thread.
template <typename T, int kCapacity>
class AppendTable {
 public:
  enum class Added { kYes, kTaken, kFull };

  const T* find(std::string_view name) const noexcept {
    for (const std::atomic<const T*>& slot : entries_) {
      const T* const entry = slot.load(std::memory_order_acquire);
      if (entry == nullptr) return nullptr;
      if (entry->name == name) return entry;
    }
    return nullptr;
  }

  Added add(T entry) {
    auto owned = std::make_unique<const T>(std::move(entry));
    for (std::atomic<const T*>& slot : entries_) {
      const T* taken = nullptr;
      if (slot.compare_exchange_strong(taken, owned.get(), std::memory_order_acq_rel)) {
        static_cast<void>(owned.release());
        return Added::kYes;
      }
      if (taken->name == owned->name) return Added::kTaken;
    }
    return Added::kFull;
  }

  template <typename Function>
  void for_each(Function function) const {
    for (const std::atomic<const T*>& slot : entries_) {
      const T* const entry = slot.load(std::memory_order_acquire);
      if (entry == nullptr) return;
      function(*entry);
    }
  }

 private:
  std::array<std::atomic<const T*>, kCapacity> entries_ = {};
};

}  // namespace cgtree
