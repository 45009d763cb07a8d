// Several observers of one pool.
#pragma once

#include <vector>

#include "allocator/pool/pool_observer.h"

namespace cgtree {

// Tells each observer in the order given. They must outlive the tee.
class ObserverTee final : public PoolObserver {
 public:
  // Throws InvalidArgument when one is null.
  explicit ObserverTee(std::vector<PoolObserver*> observers);

  void allocated(const void* address, std::size_t bytes) noexcept override;
  void freed(const void* address, std::size_t bytes) noexcept override;
  void refused(std::size_t bytes) noexcept override;

 private:
  const std::vector<PoolObserver*> observers_;
};

}  // namespace cgtree
