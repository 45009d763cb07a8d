// A share in a private pool.
#pragma once

#include <memory>
#include <utility>

#include "allocator/caching/private_pool.h"

namespace cgtree {

// Copies share the pool. It is in use while one of them exists, and gives everything back after the
// last copy and the last block are gone. The allocator must outlive it.
class PoolHandle {
 public:
  PoolHandle() = default;
  explicit PoolHandle(std::shared_ptr<PrivatePool> pool) : pool_(std::move(pool)) {}

  explicit operator bool() const noexcept { return pool_ != nullptr; }
  bool operator==(const PoolHandle&) const = default;

  PoolId id() const { return pool_->id(); }
  // Handles, routes and captures that use the pool.
  long use_count() const noexcept { return pool_.use_count(); }
  PoolStatistics statistics() const { return pool_->statistics(); }
  std::size_t deferred_blocks() const { return pool_->deferred_blocks(); }

 private:
  friend class CachingAllocator;
  friend class CaptureScope;

  std::shared_ptr<PrivatePool> pool_;  // its deleter tells the allocator
};

}  // namespace cgtree
