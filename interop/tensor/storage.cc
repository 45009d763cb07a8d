// Counts the changes of storages that no context orders, and finds the streams that order them.
#include "interop/tensor/storage.h"

#include <source_location>

#include "base/check.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream_identity.h"

namespace cgtree {
namespace {

// One count for the process, because these storages belong to no context.
std::atomic<std::uint64_t> changes_of_storages{0};

StreamIdentity identity_of_mortal(StreamRef stream) {
  const bool never_ends = stream.is_default() && !stream.is_per_thread();
  return never_ends ? StreamIdentity::kNone : recent_identity_of(stream);
}

}  // namespace

// Not inlined: contexts, which own most storages, have their own.
void StorageOwner::release_last(Storage& storage) noexcept {
  if (storage.drop_last() != Storage::End::kNotYet) release(storage);
}

void StorageOwner::throw_stale(const Storage&) const {
  check_failed("no storage of this owner is stale", std::source_location::current());
}

Storage::Storage(StorageOwner& owner, Device device, StreamRef stream, void* data,
                 std::size_t bytes, const StorageDomain* domain)
    : owner_(&owner),
      data_(data),
      device_(device),
      domain_(domain),
      bytes_(bytes),
      stream_(stream),
      stream_identity_(identity_of_mortal(stream)) {
}

// The per-thread default stream of another thread has no handle here either.
StreamRef Storage::live_stream() const {
  if (stream_identity_ == StreamIdentity::kNone) return stream_;
  const bool is_there = stream_.is_per_thread() ? recent_identity_of(stream_) == stream_identity_
                                                : static_cast<bool>(find_stream(stream_identity_));
  if (is_there) return stream_;
  DeviceAPI& api = stream_.api();
  const RelaxedCapture relaxed(api.graphs());
  check(api.synchronize_device(stream_.device().id),
        "wait for the work of a stream that has ended");
  return StreamRef(api, stream_.device(), StreamHandle::kLegacy);
}

std::uint64_t Storage::changes() noexcept {
  return changes_of_storages.load(std::memory_order_acquire);
}

void Storage::note_change() noexcept {
  changes_of_storages.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace cgtree
