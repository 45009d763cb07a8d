// AppendTable: what a program registers: things are added and found by name, and never go.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string_view>

namespace cgtree {

// T has a `name`. Constant-initialised, so that it is there before any constructor runs.
// Threads: any; what is found lives as long as the process.
template <typename T, int kPlaces>
class AppendTable {
 public:
  enum class Added { kYes, kTaken, kFull };

  const T* find(std::string_view name) const noexcept {
    for (const std::atomic<const T*>& place : places_) {
      const T* const entry = place.load(std::memory_order_acquire);
      if (entry == nullptr) return nullptr;
      if (entry->name == name) return entry;
    }
    return nullptr;
  }

  Added add(T entry) {
    auto owned = std::make_unique<const T>(std::move(entry));
    for (std::atomic<const T*>& place : places_) {
      const T* there = nullptr;
      if (place.compare_exchange_strong(there, owned.get(), std::memory_order_acq_rel)) {
        static_cast<void>(owned.release());
        return Added::kYes;
      }
      if (there->name == owned->name) return Added::kTaken;
    }
    return Added::kFull;
  }

  template <typename Function>
  void for_each(Function function) const {
    for (const std::atomic<const T*>& place : places_) {
      const T* const entry = place.load(std::memory_order_acquire);
      if (entry == nullptr) return;
      function(*entry);
    }
  }

 private:
  std::array<std::atomic<const T*>, kPlaces> places_ = {};
};

}  // namespace cgtree
