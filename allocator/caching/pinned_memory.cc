// Owns pinned blocks and waits for the copies that use them.
#include "allocator/caching/pinned_memory.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "allocator/segments/device_stream_events.h"
#include "allocator/segments/pinned_segment_source.h"
#include "base/error.h"
#include "base/log.h"

namespace cgtree {
namespace {

// The host writes and reads at once, in no stream's order: only noted uses delay a block.
constexpr StreamId kHost = kIdle;

}  // namespace

class PinnedMemory::Owner final : public StorageOwner {
 public:
  explicit Owner(Device device) : source_(device), events_(device) {}

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void unretain() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  StorageRef allocate(std::size_t bytes) {
    void* const data = bytes == 0 ? nullptr : allocator_.allocate(bytes, kHost);
    Storage* storage = nullptr;
    try {
      storage = new Storage(*this, Device::host(), host_, data, bytes);
    } catch (...) {
      if (data != nullptr) allocator_.free(data);
      throw;
    }
    retain();
    return StorageRef(*storage);
  }

  void release(Storage& storage, bool) noexcept override {
    try {
      if (storage.bytes() > 0) allocator_.free(reinterpret_cast<void*>(storage.address()));
    } catch (const std::exception& error) {  // no host memory to note what it waits for
      log_event(LogLevel::kError, "pinned_memory_lost bytes={} error=\"{}\"", storage.bytes(),
                error.what());
    }
    delete &storage;
    unretain();
  }
  void throw_stale(const Storage&) const override {
    throw StaleTensor("pinned memory is never given up");
  }
  void used(Storage& storage, StreamRef stream) override {
    if (storage.bytes() == 0) return;
    allocator_.use(reinterpret_cast<void*>(storage.address()),
                   static_cast<StreamId>(stream.handle()));
  }

  CachingAllocator& allocator() { return allocator_; }

 private:
  std::atomic<std::size_t> references_{1};
  // What the host does with the memory itself.
  const StreamRef host_{Device::host(), StreamHandle::kLegacy};
  PinnedSegmentSource source_;
  DeviceStreamEvents events_;
  SegmentCache cache_{source_, nullptr, &events_};
  CachingAllocator allocator_{cache_, {.name = "pinned"}};
};

PinnedMemory::PinnedMemory(Device device) : owner_(new Owner(device)) {
}

PinnedMemory::~PinnedMemory() {
  if (owner_ != nullptr) owner_->unretain();
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)) {
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(owner_, other.owner_);
  return *this;
}

Tensor PinnedMemory::empty(const Shape& shape, DType dtype) {
  const std::size_t bytes = bytes_of(shape, dtype);
  return Tensor(owner_->allocate(bytes), 0, shape, dtype);
}

std::size_t PinnedMemory::trim() noexcept {
  return owner_->allocator().trim();
}

AllocatorStatistics PinnedMemory::statistics() const {
  return owner_->allocator().statistics();
}

}  // namespace cgtree
