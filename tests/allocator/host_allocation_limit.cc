// Replaces operator new by a version that counts down. In a separate file, so that the compiler
// does not inline it and report malloc and delete as a mismatched pair.
#include "tests/allocator/host_allocation_limit.h"

#include <cstdlib>
#include <new>

namespace {

thread_local long allocations_left = -1;  // negative: no limit
thread_local long allocations_refused = 0;

void count_down() {
  if (allocations_left == 0) {
    ++allocations_refused;
    throw std::bad_alloc();
  }
  if (allocations_left > 0) --allocations_left;
}

void* checked(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  count_down();
  return checked(std::malloc(bytes > 0 ? bytes : 1));
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  count_down();
  const auto unit = static_cast<std::size_t>(alignment);
  return checked(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}

// Replaces AddressSanitizer's version, whose memory could not be freed by the operators below.
// std::stable_sort() calls it.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace cgtree {

void limit_host_allocations(long count) noexcept {
  allocations_left = count;
  allocations_refused = 0;
}

long host_allocations_left() noexcept {
  return allocations_left;
}

long host_allocations_refused() noexcept {
  return allocations_refused;
}

void lift_host_allocation_limit() noexcept {
  allocations_left = -1;
}

}  // namespace cgtree
