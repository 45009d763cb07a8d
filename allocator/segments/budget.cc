// Counts what is reserved.
#include "allocator/segments/budget.h"

#include <algorithm>

#include "base/check.h"

namespace cgtree {

Budget::~Budget() {
  CGTREE_CHECK(current_ == 0);
}

bool Budget::try_reserve(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  if (current_ > max_bytes_ || bytes > max_bytes_ - current_) return false;
  current_ += bytes;
  peak_ = std::max(peak_, current_);
  return true;
}

void Budget::release(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  CGTREE_CHECK(bytes <= current_);
  current_ -= bytes;
}

std::size_t Budget::max_bytes() const {
  const std::lock_guard lock(mutex_);
  return max_bytes_;
}

std::size_t Budget::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

std::size_t Budget::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

std::size_t Budget::available() const {
  const std::lock_guard lock(mutex_);
  return max_bytes_ - std::min(current_, max_bytes_);
}

void Budget::set_max_bytes(std::size_t max_bytes) noexcept {
  const std::lock_guard lock(mutex_);
  max_bytes_ = max_bytes;
}

}  // namespace cgtree
