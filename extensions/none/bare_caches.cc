// Leaves pools without thread caches.
#include "allocator/pool/pool_caches.h"
#include "base/error.h"

namespace cgtree {

std::unique_ptr<PoolCaches> make_pool_caches(CachedPool&, ThreadCaching caching) {
  if (caching == ThreadCaching::kAlways) {
    throw InvalidArgument("ThreadCaching::kAlways in a build of the core alone: link //:cgtree");
  }
  return nullptr;
}

}  // namespace cgtree
