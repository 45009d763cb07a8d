// Lets host allocations fail: a binary that links this has its operator new.
#pragma once

namespace cgtree {

// After `count` more allocations by this thread, operator new throws std::bad_alloc.
void limit_host_allocations(long count) noexcept;
// How many of these are left; negative without a limit.
long host_allocations_left() noexcept;
// How many were refused since the limit was set.
long host_allocations_refused() noexcept;
void lift_host_allocation_limit() noexcept;

}  // namespace cgtree
