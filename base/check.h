// Checks for bugs of the library: a failed check prints the condition and aborts. A mistake of the
// caller is an Error instead (error.h).
#pragma once

#include <source_location>

namespace cgtree {

[[noreturn]] void check_failed(const char* condition, std::source_location where) noexcept;

}  // namespace cgtree

// CGTREE_CHECK is always on. It is for conditions whose violation would corrupt memory.
#define CGTREE_CHECK(condition)       \
  ((condition) ? static_cast<void>(0) \
               : ::cgtree::check_failed(#condition, std::source_location::current()))

// CGTREE_DCHECK is on unless NDEBUG is defined. It is for the replay path and for checks of whole
// structures.
#ifdef NDEBUG
#define CGTREE_DCHECK(condition) static_cast<void>(sizeof(!(condition)))
#else
#define CGTREE_DCHECK(condition) CGTREE_CHECK(condition)
#endif
