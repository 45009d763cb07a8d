// Makes the pools of a context, and asks them together.
#include "cgtree/memory/context_pools.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "allocator/pool/page_map.h"
#include "allocator/segments/device_sources.h"
#include "interop/device/device_api.h"
#include "interop/tensor/outside_of_steps.h"

namespace cgtree {
namespace {

std::shared_ptr<DeviceMemory> memory_for(Device device, const ContextOptions& options) {
  if (options.segments == nullptr) return DeviceMemory::shared(device);
  return std::make_shared<DeviceMemory>(device, options.segments);
}

// Returns the bytes of addresses for each pool: more than the device's memory, because the pools of
// a group cannot continue in a second range.
std::size_t reserved_bytes_on(Device device) {
  constexpr std::size_t kLeast = std::size_t{32} << 30;
  const AttributeValue total =
      device_api(device).attribute(device.id, DeviceAttribute::kTotalMemory);
  const auto* const bytes = std::get_if<std::int64_t>(&total);
  return bytes == nullptr ? kLeast : std::max(kLeast, static_cast<std::size_t>(*bytes));
}

SegmentAccount::Options account_for(Device device, const ContextOptions& options) {
  SegmentAccount::Options account{.name = "context", .max_bytes = options.max_bytes};
  if (options.pools_grow_in_place && options.segments == nullptr) {
    account.source =
        std::make_shared<VirtualSegmentSource>(device, reserved_bytes_on(device), PageMap::kPage);
  }
  return account;
}

// Recordings contain addresses of free output and scratch memory, but not of free eager memory.
Growth growth_of(Region region, const ContextOptions& options) {
  if (!options.pools_grow_in_place) return Growth::kFast;
  return region == Region::kEager ? Growth::kInPages : Growth::kInPlace;
}

// Allocations of a recording that its warm-up did not make, such as copies of inputs, are small:
// the large blocks of the warm-up serve the recording again.
PoolOptions pool_options(Region region, const ContextOptions& options) {
  constexpr const char* kNames[] = {"output", "scratch", "eager"};
  return {.name = kNames[static_cast<int>(region)],
          .growth = growth_of(region, options),
          .has_one_segment = options.group != nullptr,
          .small_apart = region != Region::kEager && !options.pools_grow_in_place};
}

}  // namespace

ContextPools::ContextPools(Device device, const ContextOptions& options, StreamRef stream)
    : device_(memory_for(device, options)), account_(account_for(device, options)) {
  const StreamId id = stream_id(stream);
  for (const Region region : {Region::kOutput, Region::kScratch, Region::kEager}) {
    const int i = static_cast<int>(region);
    segments_[i] = std::make_unique<PoolSegments>(device_->cache(), account_);
    segments_[i]->set_stream(id);
    segments_[i]->set_keeps(region != Region::kEager);
    PoolOptions of_pool = pool_options(region, options);
    of_pool.stream = id;
    pools_[i] = std::make_unique<Pool>(*segments_[i], std::move(of_pool));
  }
  // A point of an ending stream makes its last event cover blocks freed later, too: other pools may
  // ask for the memory before the context has moved to another stream.
  on_retire_ = device_->add_on_retire([this](StreamId stream) {
    if (segments_[0]->stream() == stream) (void)device_->cache().progress().now(stream);
  });
}

ContextPools::~ContextPools() {
  device_->remove_on_retire(on_retire_);
  set_reclaim(nullptr);
}

void ContextPools::move_to(StreamId stream) noexcept {
  for (auto& segments : segments_)
    segments->set_stream(stream);
}

// The pools are closed first, so that idle memory returns to its source. Memory that was freed
// earlier, here or by others, may have points of the stream: an event covers them now, because none
// can be recorded once the stream is destroyed.
void ContextPools::end(bool is_idle) noexcept {
  const StreamId stream = segments_[0]->stream();
  if (is_idle) move_to(kIdle);
  for (auto& pool : pools_)
    pool->close();
  device_->cache().progress().cover(stream);
  if (account_.source() != nullptr) (void)device_->cache().trim(account_.source());
}

void ContextPools::give_back_idle() {
  if (device_ != DeviceMemory::shared(device_->device())) (void)device_->cache().trim();
}

std::shared_ptr<const void> ContextPools::defer_frees() {
  return device_->cache().defer_frees();
}

void ContextPools::set_reclaim(Reclaim reclaim) {
  if (reclaim_) device_->cache().remove_reclaim(*std::exchange(reclaim_, std::nullopt));
  if (reclaim) reclaim_ = device_->cache().add_reclaim(std::move(reclaim), &account_);
}

Tensor ContextPools::empty_pinned(const Shape& shape, DType dtype) {
  const OutsideOfSteps outside;  // it is the context's, whatever step is open
  if (!pinned_) pinned_.emplace(device_->device());
  return pinned_->empty(shape, dtype);
}

bool ContextPools::owns(const void* address) const {
  return std::any_of(pools_.begin(), pools_.end(),
                     [&](const auto& pool) { return pool->owns(address); });
}

std::size_t ContextPools::reserved_bytes() const {
  std::size_t bytes = 0;
  for (const auto& pool : pools_)
    bytes += pool->statistics().reserved_bytes.current;
  return bytes;
}

void ContextPools::validate() const {
  for (const auto& pool : pools_)
    pool->validate();
}

}  // namespace cgtree
