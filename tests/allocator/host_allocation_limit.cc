// Replaces operator new by one that counts down. Apart from the tests, so that the compiler does
// not see through it and take malloc and delete for a mismatched pair.
#include "tests/allocator/host_allocation_limit.h"

#include <cstdlib>
#include <new>

namespace {

thread_local long allocations_left = -1;  // negative: no limit

}  // namespace

void* operator new(std::size_t bytes) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace cgtree {

void limit_host_allocations(long count) noexcept {
  allocations_left = count;
}

void lift_host_allocation_limit() noexcept {
  allocations_left = -1;
}

}  // namespace cgtree
