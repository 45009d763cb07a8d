// Owns pinned blocks and waits for the copies that use them.
#include "allocator/device/pinned_memory.h"

#include <atomic>
#include <utility>

#include "allocator/device/device_memory.h"
#include "allocator/device/stream_pool.h"
#include "allocator/segments/device_sources.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

// The host reads and writes at once, unordered with any stream: only noted uses delay a block.
constexpr StreamId kHost = kIdle;

// Pinned memory is not charged to the device: no device memory is released for it.
std::shared_ptr<SegmentAccount> pinned_account(Device device) {
  if (device_api(device).graphs() == nullptr) {
    throw InvalidArgument(str_format(
        "{} has no events, which tell when pinned memory is free again", to_string(device)));
  }
  return std::make_shared<SegmentAccount>(
      SegmentAccount::Options{.name = "pinned",
                              .source = std::make_shared<PinnedSegmentSource>(device),
                              .reserve = std::make_shared<Budget>("pinned memory")});
}

}  // namespace

class PinnedMemory::Owner final : public StorageOwner {
 public:
  explicit Owner(Device device)
      : device_(DeviceMemory::shared(device)),
        account_(pinned_account(device)),
        pool_(std::make_unique<StreamPool>(device_->cache(), *account_,
                                           PoolOptions{.name = "pinned", .stream = kHost})),
        on_retire_(device_->add_on_retire([this](StreamId stream) { pool_->retire(stream); })) {}
  // Releases freed blocks that are no longer in use first: they do not count as held.
  ~Owner() {
    device_->remove_on_retire(on_retire_);
    (void)trim();
    if (pool_->pending_blocks() > 0) device_->keep_pending(std::move(pool_), account_);
  }

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void unretain() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  StorageRef allocate(std::size_t bytes) {
    void* const data = bytes == 0 ? nullptr : pool_->allocate(bytes);
    Storage* storage = nullptr;
    try {
      storage = new Storage(*this, Device::host(), host_, data, bytes);
    } catch (...) {
      if (data != nullptr) pool_->free(data);
      throw;
    }
    retain();
    return StorageRef(*storage);
  }

  void release(Storage& storage) noexcept override {
    try {
      if (storage.bytes() > 0) pool_->free(reinterpret_cast<void*>(storage.address()));
    } catch (const std::exception& error) {  // no host memory for the list of uses
      log_event(LogLevel::kError, "pinned_memory_lost bytes={} error=\"{}\"", storage.bytes(),
                error.what());
    }
    delete &storage;
    unretain();
  }
  void expect_use(const Storage& storage, StreamRef stream) const override {
    if (storage.bytes() == 0) return;
    if (stream.api().graphs() != nullptr) (void)stream_id(stream);  // throws
  }
  void used(Storage& storage, StreamRef stream) override {
    if (storage.bytes() == 0) return;
    if (stream.api().graphs() == nullptr) return stream.synchronize();
    pool_->use(reinterpret_cast<void*>(storage.address()), stream_id(stream));
  }

  std::size_t trim() noexcept {
    device_->collect();
    pool_->drain();
    pool_->pool().trim();
    return device_->cache().trim(account_->source());
  }
  PoolStatistics statistics() const { return pool_->pool().statistics(); }
  std::size_t pending_blocks() const { return pool_->pending_blocks(); }

 private:
  std::atomic<std::size_t> references_{1};
  const StreamRef host_{Device::host(), StreamHandle::kLegacy};  // stream of the storages
  const std::shared_ptr<DeviceMemory> device_;
  const std::shared_ptr<SegmentAccount> account_;
  std::unique_ptr<StreamPool> pool_;  // not null before the destructor
  const std::size_t on_retire_;
};

PinnedMemory::PinnedMemory(Device device) : owner_(new Owner(device)) {
}

void PinnedMemory::Release::operator()(Owner* owner) const noexcept {
  owner->unretain();
}

Tensor PinnedMemory::empty(const Shape& shape, DType dtype) {
  const std::size_t bytes = bytes_of(shape, dtype);
  Tensor made(owner_->allocate(bytes), 0, shape, dtype);
  StorageAllocator* const allocator = current_allocator();
  if (bytes > 0 && allocator != nullptr) allocator->made_elsewhere(made.storage());
  return made;
}

std::size_t PinnedMemory::trim() noexcept {
  return owner_->trim();
}

PoolStatistics PinnedMemory::statistics() const {
  return owner_->statistics();
}

std::size_t PinnedMemory::pending_blocks() const {
  return owner_->pending_blocks();
}

}  // namespace cgtree
