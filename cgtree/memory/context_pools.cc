// Makes the pools of a context, and ends them.
#include "cgtree/memory/context_pools.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "allocator/pool/page_map.h"
#include "allocator/segments/device_sources.h"
#include "base/check.h"
#include "interop/device/device_api.h"

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

// Recordings know the addresses of free output and scratch memory; eager memory has no such user.
Growth growth_of(Region region, const ContextOptions& options) {
  if (!options.pools_grow_in_place) return Growth::kFast;
  return region == Region::kEager ? Growth::kInPages : Growth::kInPlace;
}

// What a recording allocates and its warm-up did not, such as copies of inputs, is small: the large
// blocks of the warm-up serve the recording again.
bool is_apart(Region region, const ContextOptions& options) {
  return region != Region::kEager && !options.pools_grow_in_place;
}

std::shared_ptr<SegmentAccount> account_for(Device device, const ContextOptions& options) {
  SegmentAccount::Options account{.name = "context", .max_bytes = options.max_bytes};
  if (options.pools_grow_in_place && options.segments == nullptr) {
    account.source =
        std::make_shared<VirtualSegmentSource>(device, reserved_bytes_on(device), PageMap::kPage);
  }
  return std::make_shared<SegmentAccount>(std::move(account));
}

}  // namespace

ContextPools::ContextPools(Device device, const ContextOptions& options, StreamId stream)
    : stream_(stream),
      device_(allocator_for(device, options)),
      account_(account_for(device, options)) {
  constexpr const char* kNames[] = {"output", "scratch", "eager"};
  for (const Region region : {Region::kOutput, Region::kScratch, Region::kEager}) {
    const int i = static_cast<int>(region);
    handles_[i] =
        device_->allocator().make_pool({.pool = {.name = kNames[i],
                                                 .growth = growth_of(region, options),
                                                 .has_one_segment = options.group != nullptr,
                                                 .small_apart = is_apart(region, options)},
                                        .account = account_,
                                        .keeps_segments = region != Region::kEager});
    pools_[i] = &handles_[i].pool_on(stream);
  }
}

ContextPools::~ContextPools() {
  set_reclaim(nullptr);
}

void ContextPools::move_to(StreamId stream) noexcept {
  for (const PoolHandle& handle : handles_)
    handle.move_pool(stream_, stream);
  stream_ = stream;
}

// The pools are closed first, so that what is idle goes back to its source. Other users of the
// stream may have submitted more work since this context left it, so an event covers their points
// in any case.
void ContextPools::end() noexcept {
  for (Pool* const pool : pools_)
    pool->close();
  device_->cache().progress().cover(stream_);
  for (PoolHandle& handle : handles_)
    handle = PoolHandle();
}

void ContextPools::give_back_idle(Device device) {
  if (device_ != DeviceAllocator::shared(device)) (void)device_->cache().trim();
}

bool ContextPools::owns(const void* address) const {
  return std::any_of(pools_.begin(), pools_.end(),
                     [&](const Pool* pool) { return pool->owns(address); });
}

std::size_t ContextPools::reserved_bytes() const {
  std::size_t bytes = 0;
  for (const Pool* const pool : pools_)
    bytes += pool->statistics().reserved_bytes.current;
  return bytes;
}

void ContextPools::set_reclaim(SegmentCache::Reclaim reclaim) {
  if (reclaim_) device_->cache().remove_reclaim(*std::exchange(reclaim_, std::nullopt));
  if (reclaim) reclaim_ = device_->cache().add_reclaim(std::move(reclaim), account_.get());
}

void ContextPools::validate() const {
  for (const Pool* const pool : pools_)
    pool->validate();
}

}  // namespace cgtree
