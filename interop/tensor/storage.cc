// Counts what becomes of storages that no context orders.
#include "interop/tensor/storage.h"

namespace cgtree {
namespace {

// One count for the process, because such a storage belongs to no context that could have its own.
std::atomic<std::uint64_t> changes_of_storages{0};

}  // namespace

std::uint64_t Storage::changes() noexcept {
  return changes_of_storages.load(std::memory_order_acquire);
}

void Storage::note_change() noexcept {
  changes_of_storages.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace cgtree
