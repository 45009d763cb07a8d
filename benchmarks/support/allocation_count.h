// allocation_count(): how often this thread has taken memory from the heap with operator new.
#pragma once

#include <cstdint>

namespace cgtree::benchmarks {

// Linking this replaces the program's operator new. What a driver takes with malloc is not counted.
std::uint64_t allocation_count() noexcept;

}  // namespace cgtree::benchmarks
