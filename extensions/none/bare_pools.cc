// Gives a context of the core alone pools over its device: no other context has a share in their
// segments, and what is given back goes back to the device at once.
#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cgtree/memory/context_pools.h"
#include "interop/device/stream_identity.h"

namespace cgtree {
namespace {

class DeviceSource final : public SegmentSource {
 public:
  explicit DeviceSource(Device device) noexcept : device_(device) {}
  void* allocate(std::size_t bytes, StreamId) override {
    return allocate_device_memory(device_, bytes);
  }
  void free(void* segment, std::size_t, StreamId) noexcept override {
    free_device_memory(device_, segment);
  }

 private:
  const Device device_;
};

// A Limit stands between the three pools and their source: it has the stream and the budget.
class Limit final : public SegmentSource {
 public:
  Limit(Device device, const ContextOptions& options, StreamId stream)
      : own_(device),
        source_(options.segments != nullptr ? *options.segments : own_),
        max_bytes_(options.max_bytes),
        stream_(stream) {}

  void set_stream(StreamId stream) noexcept { stream_ = stream; }
  void set_reclaim(ContextPools::Reclaim reclaim) { reclaim_ = std::move(reclaim); }

  // SegmentSource.
  void* allocate(std::size_t bytes, StreamId stream) override {
    make_room(bytes);
    try {
      return allocate_from_free(bytes, stream);
    } catch (const OutOfMemory&) {
      if (!reclaim_ || reclaim_(bytes) == 0) throw;
    }
    return allocate_from_free(bytes, stream);
  }
  void* allocate_from_free(std::size_t bytes, StreamId) override {
    expect_room(bytes);
    void* const segment = source_.allocate(bytes, stream_);
    reserved_ += bytes;
    return segment;
  }
  void free(void* segment, std::size_t bytes, StreamId) noexcept override {
    source_.free(segment, bytes, stream_);
    reserved_ -= bytes;
  }
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId) override {
    make_room(grown - bytes);
    if (!source_.grow(segment, bytes, grown, stream_)) return false;
    reserved_ += grown - bytes;
    return true;
  }
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId) noexcept override {
    const std::size_t left = source_.shrink(segment, bytes, least, stream_);
    reserved_ -= bytes - left;
    return left;
  }
  void map(void* segment, std::size_t bytes, std::size_t offset, std::size_t count,
           StreamId) override {
    make_room(count);
    source_.map(segment, bytes, offset, count, stream_);
    reserved_ += count;
  }
  bool unmap(void* segment, std::size_t bytes, std::size_t offset, std::size_t count,
             StreamId) noexcept override {
    if (!source_.unmap(segment, bytes, offset, count, stream_)) return false;
    reserved_ -= count;
    return true;
  }

 private:
  bool has_room(std::size_t bytes) const noexcept {
    return bytes <= max_bytes_ - std::min<std::size_t>(reserved_, max_bytes_);
  }
  void expect_room(std::size_t bytes) const {
    if (has_room(bytes)) return;
    throw OutOfMemory("the context holds " + std::to_string(reserved_) + " bytes, max_bytes is " +
                      std::to_string(max_bytes_));
  }
  void make_room(std::size_t bytes) {
    if (!has_room(bytes) && reclaim_) (void)reclaim_(bytes);
    expect_room(bytes);
  }

  DeviceSource own_;
  SegmentSource& source_;
  const std::size_t max_bytes_;
  std::atomic<StreamId> stream_;
  std::atomic<std::size_t> reserved_{0};
  ContextPools::Reclaim reclaim_;
};

// Owns pinned blocks. What a block was used for is waited for when its last handle goes.
class Pinned final : public StorageOwner {
 public:
  static Tensor empty(Device device, const Shape& shape, DType dtype) {
    return Tensor((new Pinned(device, bytes_of(shape, dtype)))->first(), 0, shape, dtype);
  }

  void release(Storage&, bool) noexcept override {
    try {
      for (const StreamRef stream : users_)
        stream.synchronize();
    } catch (const std::exception&) {
      return;  // the work may still read it
    }
    free_pinned_memory(device_, data_);
    delete this;
  }
  void throw_stale(const Storage&) const override {
    throw StaleTensor("pinned memory is never invalidated");
  }
  void used(Storage&, StreamRef stream) override {
    if (std::ranges::find(users_, stream) == users_.end()) users_.push_back(stream);
  }

 private:
  Pinned(Device device, std::size_t bytes)
      : device_(device),
        data_(bytes == 0 ? nullptr : allocate_pinned_memory(device, bytes)),
        storage_(*this, Device::host(), StreamRef(Device::host(), StreamHandle::kLegacy), data_,
                 bytes) {}
  StorageRef first() { return StorageRef(storage_); }

  const Device device_;
  void* const data_;
  Storage storage_;
  std::vector<StreamRef> users_;
};

class BarePools final : public ContextPools {
 public:
  BarePools(Device device, const ContextOptions& options, StreamId stream)
      : device_(device), limit_(device, options, stream) {
    for (const Region region : {Region::kOutput, Region::kScratch, Region::kEager}) {
      const int i = static_cast<int>(region);
      PoolOptions of_pool = pool_options(region, options);
      of_pool.stream = stream;
      pools_[i] = &pool_of_[i].emplace(limit_, of_pool);
    }
  }

  // ContextPools.
  void move_to(StreamId stream) noexcept override { limit_.set_stream(stream); }
  void end(bool is_idle) noexcept override {
    if (is_idle) move_to(kIdle);
    for (Pool* const pool : pools_)
      pool->close();
  }
  void give_back_idle() override {}
  void give_back_cached() override {}
  // The device takes frees while captures are open, and so must a source of the caller's.
  std::shared_ptr<const void> defer_frees() override { return nullptr; }
  void set_reclaim(Reclaim reclaim) override { limit_.set_reclaim(std::move(reclaim)); }
  Tensor empty_pinned(const Shape& shape, DType dtype) override {
    return Pinned::empty(device_, shape, dtype);
  }

 private:
  const Device device_;
  Limit limit_;
  std::array<std::optional<Pool>, 3> pool_of_;
};

}  // namespace

std::unique_ptr<ContextPools> make_context_pools(Device device, const ContextOptions& options,
                                                 StreamRef stream) {
  if (options.pools_grow_in_place && options.segments == nullptr) {
    throw InvalidArgument(
        "ContextOptions::pools_grow_in_place without ContextOptions::segments in a build of the "
        "core alone: link //:cgtree");
  }
  return std::make_unique<BarePools>(device, options, static_cast<StreamId>(identity_of(stream)));
}

}  // namespace cgtree
