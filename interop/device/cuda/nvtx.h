// NVTX's domain "cgtree". The toolkit's nvtx3 is headers alone; a profiler is found at run time.
#pragma once

#include <cstdint>

namespace cgtree::nvtx {

// Returns whether a profiler has made the domain.
bool listens() noexcept;
// Opens and ends a range of the calling thread. `text` is copied. Requires: listens().
void push(const char* text, std::uint64_t payload) noexcept;
void pop() noexcept;

}  // namespace cgtree::nvtx
