// Checks for bugs of the library: a failed check prints the condition and aborts. A mistake of the
// caller is an Error instead (error.h).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace cgtree {

// It is not inlined, so that a check adds only a branch and a call to its function.
[[noreturn, gnu::cold, gnu::noinline]] inline void check_failed(
    const char* condition, std::source_location where) noexcept {
  std::fprintf(stderr, "%s:%u: check failed: %s\n", where.file_name(),
               static_cast<unsigned>(where.line()), condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace cgtree

// CGTREE_CHECK is always on. It is for conditions whose violation would corrupt memory.
#define CGTREE_CHECK(condition)       \
  ((condition) ? static_cast<void>(0) \
               : ::cgtree::check_failed(#condition, std::source_location::current()))

// CGTREE_DCHECK is on unless NDEBUG is defined. It is for the replay path and for checks of whole
// data structures.
#ifdef NDEBUG
#define CGTREE_DCHECK(condition) static_cast<void>(sizeof(!(condition)))
#else
#define CGTREE_DCHECK(condition) CGTREE_CHECK(condition)
#endif
