// Who is told of every allocation of a pool.
#pragma once

#include <cstddef>

namespace cgtree {

// Called with the pool's lock held, in the order in which things happen: it must not call the pool.
// `bytes` are those asked for.
class PoolObserver {
 public:
  virtual ~PoolObserver() = default;

  virtual void allocated(const void* address, std::size_t bytes) noexcept = 0;
  virtual void freed(const void* address, std::size_t bytes) noexcept = 0;
  // The pool had no room.
  virtual void refused(std::size_t bytes) noexcept = 0;
};

}  // namespace cgtree
