// Passes on what a pool tells.
#include "allocator/reports/observer_tee.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace cgtree {

ObserverTee::ObserverTee(std::vector<PoolObserver*> observers) : observers_(std::move(observers)) {
  if (std::count(observers_.begin(), observers_.end(), nullptr) > 0) {
    throw InvalidArgument("one of the observers is null; leave it out");
  }
}

void ObserverTee::allocated(const void* address, std::size_t bytes) noexcept {
  for (PoolObserver* const observer : observers_)
    observer->allocated(address, bytes);
}

void ObserverTee::freed(const void* address, std::size_t bytes) noexcept {
  for (PoolObserver* const observer : observers_)
    observer->freed(address, bytes);
}

void ObserverTee::refused(std::size_t bytes) noexcept {
  for (PoolObserver* const observer : observers_)
    observer->refused(bytes);
}

}  // namespace cgtree
