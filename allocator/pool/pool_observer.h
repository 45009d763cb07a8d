// PoolObserver: a listener for the allocations of a pool. ObserverTee: several of them as one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/error.h"

namespace cgtree {

// A PoolObserver is called with the pool's lock held, in the order in which things happen, and so
// it must not call the pool. `bytes` are the bytes that were asked for.
class PoolObserver {
 public:
  virtual ~PoolObserver() = default;

  virtual void allocated(const void* address, std::size_t bytes) noexcept = 0;
  virtual void freed(const void* address, std::size_t bytes) noexcept = 0;
  // The pool had no room.
  virtual void refused(std::size_t bytes) noexcept = 0;
};

// An ObserverTee passes every call on to several observers, in the order given. They must outlive
// it.
class ObserverTee final : public PoolObserver {
 public:
  // Throws InvalidArgument if one of them is null.
  explicit ObserverTee(std::vector<PoolObserver*> observers) : observers_(std::move(observers)) {
    if (std::count(observers_.begin(), observers_.end(), nullptr) > 0) {
      throw InvalidArgument("one of the observers is null; leave it out");
    }
  }

  void allocated(const void* address, std::size_t bytes) noexcept override {
    for (PoolObserver* const observer : observers_)
      observer->allocated(address, bytes);
  }
  void freed(const void* address, std::size_t bytes) noexcept override {
    for (PoolObserver* const observer : observers_)
      observer->freed(address, bytes);
  }
  void refused(std::size_t bytes) noexcept override {
    for (PoolObserver* const observer : observers_)
      observer->refused(bytes);
  }

 private:
  const std::vector<PoolObserver*> observers_;
};

}  // namespace cgtree
