// Reserves at each level from a budget to the root of its tree.
#include "allocator/segments/budget.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cgtree {

Budget::Budget(std::string name, std::size_t max_bytes, Budget* parent)
    : name_(std::move(name)),
      parent_(parent),
      mutex_(parent == nullptr ? std::make_shared<Mutex<LockRank::kBudget>>() : parent->mutex_),
      max_bytes_(max_bytes) {
}

Budget::~Budget() {
  CGTREE_CHECK(current_ == 0);
}

const Budget* Budget::try_reserve(std::size_t bytes) noexcept {
  const std::lock_guard lock(*mutex_);
  for (const Budget* level = this; level != nullptr; level = level->parent_) {
    if (level->current_ > level->max_bytes_ || bytes > level->max_bytes_ - level->current_) {
      return level;
    }
  }
  for (Budget* level = this; level != nullptr; level = level->parent_) {
    level->current_ += bytes;
    level->peak_ = std::max(level->peak_, level->current_);
  }
  return nullptr;
}

const Budget* Budget::level_below(std::size_t bytes) const noexcept {
  const std::lock_guard lock(*mutex_);
  const Budget* level = this;
  while (level != nullptr && bytes <= level->max_bytes_)
    level = level->parent_;
  return level;
}

void Budget::release(std::size_t bytes) noexcept {
  const std::lock_guard lock(*mutex_);
  for (Budget* level = this; level != nullptr; level = level->parent_) {
    CGTREE_CHECK(bytes <= level->current_);
    level->current_ -= bytes;
  }
}

std::size_t Budget::max_bytes() const {
  const std::lock_guard lock(*mutex_);
  return max_bytes_;
}

std::size_t Budget::current() const {
  const std::lock_guard lock(*mutex_);
  return current_;
}

std::size_t Budget::peak() const {
  const std::lock_guard lock(*mutex_);
  return peak_;
}

std::size_t Budget::available() const {
  const std::lock_guard lock(*mutex_);
  return max_bytes_ - std::min(current_, max_bytes_);
}

void Budget::set_max_bytes(std::size_t max_bytes) noexcept {
  const std::lock_guard lock(*mutex_);
  max_bytes_ = max_bytes;
}

}  // namespace cgtree
