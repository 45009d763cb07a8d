// Takes the pools of a context from the caching allocator of its device, which contexts share.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "allocator/pool/page_map.h"
#include "allocator/segments/device_sources.h"
#include "caching/device_allocator.h"
#include "caching/pinned_memory.h"
#include "cgtree/memory/context_pools.h"
#include "interop/device/device_api.h"
#include "interop/tensor/outside_of_steps.h"

namespace cgtree {
namespace {

std::shared_ptr<DeviceAllocator> allocator_for(Device device, const ContextOptions& options) {
  if (options.segments == nullptr) return DeviceAllocator::shared(device);
  return std::make_shared<DeviceAllocator>(device, *options.segments);
}

// Returns the bytes of addresses for each pool: more than the device has memory for, because the
// pools of a group cannot go on in a second range.
std::size_t reserved_bytes_on(Device device) {
  constexpr std::size_t kLeast = std::size_t{32} << 30;
  const AttributeValue total =
      device_api(device).attribute(device.id, DeviceAttribute::kTotalMemory);
  const auto* const bytes = std::get_if<std::int64_t>(&total);
  return bytes == nullptr ? kLeast : std::max(kLeast, static_cast<std::size_t>(*bytes));
}

std::shared_ptr<SegmentAccount> account_for(Device device, const ContextOptions& options) {
  SegmentAccount::Options account{.name = "context", .max_bytes = options.max_bytes};
  if (options.pools_grow_in_place && options.segments == nullptr) {
    account.source =
        std::make_shared<VirtualSegmentSource>(device, reserved_bytes_on(device), PageMap::kPage);
  }
  return std::make_shared<SegmentAccount>(std::move(account));
}

// The pools are private pools of the allocator, in one account.
class SharedPools final : public ContextPools {
 public:
  SharedPools(Device device, const ContextOptions& options, StreamId stream)
      : stream_(stream),
        device_(allocator_for(device, options)),
        account_(account_for(device, options)) {
    for (const Region region : {Region::kOutput, Region::kScratch, Region::kEager}) {
      const int i = static_cast<int>(region);
      handles_[i] = device_->allocator().make_pool({.pool = pool_options(region, options),
                                                    .account = account_,
                                                    .keeps_segments = region != Region::kEager});
      pools_[i] = &handles_[i].pool_on(stream);
    }
  }
  ~SharedPools() override { SharedPools::set_reclaim(nullptr); }

  // ContextPools.
  void move_to(StreamId stream) noexcept override {
    for (const PoolHandle& handle : handles_)
      handle.move_pool(stream_, stream);
    stream_ = stream;
  }
  // The pools are closed first, so that what is idle goes back to its source. What was freed before
  // has points of the stream, and so may what others free: an event covers them now, as none can be
  // recorded once the stream is destroyed.
  void end(bool is_idle) noexcept override {
    const StreamId stream = stream_;
    if (is_idle) move_to(kIdle);
    for (Pool* const pool : pools_)
      pool->close();
    device_->cache().progress().cover(stream);
    if (pinned_) (void)pinned_->trim();  // the same for its allocator, which is the shared one
    for (PoolHandle& handle : handles_)
      handle = PoolHandle();
  }
  void give_back_idle() override {
    if (device_ != DeviceAllocator::shared(device_->device())) (void)device_->cache().trim();
  }
  void give_back_cached() override { (void)device_->cache().trim(); }
  std::shared_ptr<const void> defer_frees() override {
    return std::make_shared<DeferredFrees>(device_->cache().defer_frees());
  }
  void set_reclaim(Reclaim reclaim) override {
    if (reclaim_) device_->cache().remove_reclaim(*std::exchange(reclaim_, std::nullopt));
    if (reclaim) reclaim_ = device_->cache().add_reclaim(std::move(reclaim), account_.get());
  }
  Tensor empty_pinned(const Shape& shape, DType dtype) override {
    const OutsideOfSteps outside;  // it is the context's, whatever step is open
    if (!pinned_) pinned_.emplace(device_->device());
    return pinned_->empty(shape, dtype);
  }

 private:
  StreamId stream_;  // guarded by the mutex of ContextStream
  const std::shared_ptr<DeviceAllocator> device_;
  const std::shared_ptr<SegmentAccount> account_;
  std::optional<SegmentCache::ReclaimId> reclaim_;
  std::array<PoolHandle, 3> handles_;  // by Region
  std::optional<PinnedMemory> pinned_;
};

}  // namespace

std::unique_ptr<ContextPools> make_context_pools(Device device, const ContextOptions& options,
                                                 StreamRef stream) {
  return std::make_unique<SharedPools>(device, options, stream_id(stream));
}

}  // namespace cgtree
