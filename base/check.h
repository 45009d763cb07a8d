// Checks for our own bugs: they print the condition and abort. A user's mistake is an Error
// instead.
#pragma once

#include <source_location>

namespace cgtree {

[[noreturn]] void check_failed(const char* condition, std::source_location where) noexcept;

}  // namespace cgtree

// Always on. For conditions whose violation would corrupt memory.
#define CGTREE_CHECK(condition)       \
  ((condition) ? static_cast<void>(0) \
               : ::cgtree::check_failed(#condition, std::source_location::current()))

// On unless NDEBUG. For conditions on the replay path and for walks.
#ifdef NDEBUG
#define CGTREE_DCHECK(condition) static_cast<void>(sizeof(!(condition)))
#else
#define CGTREE_DCHECK(condition) CGTREE_CHECK(condition)
#endif
