// Makes host allocations fail: a binary that links this uses its operator new.
#pragma once

namespace cgtree {

// After `count` more allocations by this thread, operator new throws std::bad_alloc.
void limit_host_allocations(long count) noexcept;
// Returns the number of allocations that are left; negative without a limit.
long host_allocations_left() noexcept;
// Returns the number of allocations that were refused since the limit was set.
long host_allocations_refused() noexcept;
void lift_host_allocation_limit() noexcept;

}  // namespace cgtree
