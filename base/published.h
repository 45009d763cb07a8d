// Published: a value that one thread changes while others read it.
#pragma once

#include <atomic>

namespace cgtree {

// A Published costs its writer as much as a plain value: a load and a store, without a locked
// instruction. Readers see some recent value; several values are not read at the same instant.
// Thread safety: one thread at a time changes it, any thread reads it.
template <typename T>
class Published {
 public:
  Published() noexcept : value_(T{}) {}
  Published(T value) noexcept : value_(value) {}
  Published(const Published& other) noexcept : value_(static_cast<T>(other)) {}
  Published& operator=(const Published& other) noexcept { return *this = static_cast<T>(other); }
  Published& operator=(T value) noexcept {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }

  T get() const noexcept { return value_.load(std::memory_order_relaxed); }
  operator T() const noexcept { return get(); }
  T operator->() const noexcept { return *this; }
  Published& operator+=(T more) noexcept { return *this = static_cast<T>(*this) + more; }
  Published& operator-=(T less) noexcept { return *this = static_cast<T>(*this) - less; }
  Published& operator++() noexcept { return *this += T{1}; }
  Published& operator--() noexcept { return *this -= T{1}; }

 private:
  std::atomic<T> value_;
};

}  // namespace cgtree
