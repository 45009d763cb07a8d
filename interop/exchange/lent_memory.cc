// Keeps the table of leases by address. It belongs to the process, as addresses do.
#include "interop/exchange/lent_memory.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/mutex.h"

namespace cgtree {
namespace {

struct LentTable {
  Mutex<LockRank::kLeaf> mutex;  // guards all below
  std::multimap<std::uintptr_t, Storage*> by_address;
  std::size_t largest = 0;  // bytes of the largest storage so far
};

// It is never destroyed, because libraries also release their arrays at exit.
LentTable& lent_table() {
  static LentTable* const made = new LentTable;
  return *made;
}

bool holds(const Storage& storage, std::optional<Device> device, std::uintptr_t address,
           std::size_t bytes) {
  const std::uintptr_t offset = address - storage.address();
  const auto state = storage.state();
  return offset <= storage.bytes() && bytes <= storage.bytes() - offset &&
         (!device || storage.device() == *device) &&
         (state == Storage::State::kLive || state == Storage::State::kBorrowed);
}

}  // namespace

Lease::Lease(StorageRef storage) : storage_(std::move(storage)) {
  if (!storage_) return;
  LentTable& all = lent_table();
  const std::lock_guard lock(all.mutex);
  entry_ = all.by_address.emplace(storage_->address(), storage_.get());
  all.largest = std::max(all.largest, storage_->bytes());
  storage_->add_lease();
}

Lease& Lease::operator=(Lease&& other) noexcept {
  std::swap(storage_, other.storage_);
  std::swap(entry_, other.entry_);
  return *this;
}

// The storage is released last, without the mutex, because its owner may take locks.
Lease::~Lease() {
  if (!storage_) return;
  LentTable& all = lent_table();
  const std::lock_guard lock(all.mutex);
  all.by_address.erase(entry_);
  storage_->remove_lease();
}

StorageRef find_lent(std::optional<Device> device, std::uintptr_t address,
                     std::size_t bytes) noexcept {
  LentTable& all = lent_table();
  const std::lock_guard lock(all.mutex);
  for (auto next = all.by_address.upper_bound(address); next != all.by_address.begin();) {
    --next;
    if (address - next->first > all.largest) break;
    if (holds(*next->second, device, address, bytes)) return StorageRef(*next->second);
  }
  return {};
}

}  // namespace cgtree
