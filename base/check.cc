// Prints a failed check and aborts.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace cgtree {

void check_failed(const char* condition, std::source_location where) noexcept {
  std::fprintf(stderr, "%s:%u: check failed: %s\n", where.file_name(),
               static_cast<unsigned>(where.line()), condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace cgtree
