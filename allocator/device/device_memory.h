// DeviceMemory: the segments of a device, with their budget and the driver gate.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <utility>

#include "allocator/device/device_streams.h"
#include "allocator/device/stream_pool.h"
#include "allocator/segments/budget.h"
#include "allocator/segments/device_sources.h"
#include "allocator/segments/segment_cache.h"
#include "base/call_list.h"
#include "base/mutex.h"
#include "interop/device/stream.h"

namespace cgtree {

// A DeviceMemory provides the segments of contexts, pinned memory and the caching allocator of a
// device. All of them share one cache, one budget and one driver gate: while a capture of one of
// them is open, no segment is freed on the device.
//
// Thread safety: all functions may be called from any thread.
class DeviceMemory {
 public:
  // `segments`: a caller's source, which must outlive this object, or null for the device's.
  explicit DeviceMemory(Device device, SegmentSource* segments = nullptr);
  ~DeviceMemory();

  // Returns the memory that contexts share unless they have their own segments. It is made for the
  // first user of a device and ends with the last. Throws InvalidArgument if there is no such
  // device.
  static std::shared_ptr<DeviceMemory> shared(Device device);

  Device device() const noexcept { return device_; }
  SegmentCache& cache() noexcept { return cache_; }
  Budget& budget() noexcept { return budget_; }

  // Adds a function that is called with each stream, of any device, that is about to end, while
  // events on it may still be recorded. remove_on_retire() waits for a call in progress.
  using OnRetire = std::function<void(StreamId stream)>;
  std::size_t add_on_retire(OnRetire function) { return on_retire_.add(std::move(function)); }
  void remove_on_retire(std::size_t id) noexcept { on_retire_.remove(id); }

  // Keeps an unused pool until collect() finds that its pending blocks are free. collect() may free
  // memory of the device: do not call it in code that may run in a capture of the caller's.
  void keep_pending(std::unique_ptr<StreamPool> pool,
                    std::shared_ptr<SegmentAccount> account) noexcept;
  void collect() noexcept;

  // Returns the client of this memory, which `make` makes on the first call. It is destroyed with
  // the memory, before the cache.
  using Client = std::shared_ptr<void>;
  Client client(const std::function<Client(DeviceMemory&)>& make);

 private:
  struct Ended {
    std::shared_ptr<SegmentAccount> account;
    std::unique_ptr<StreamPool> pool;
  };

  const Device device_;
  DeviceSegmentSource source_;
  std::unique_ptr<DeviceStreamEvents> events_;  // null if the device has none
  Budget budget_;
  SegmentCache cache_;
  mutable Mutex<LockRank::kAllocator> mutex_;  // guards the next two
  std::list<Ended> ended_;
  Client client_;
  CallList<OnRetire> on_retire_;
  // For all devices: blocks may be used on a stream of another device.
  const StreamWatch watch_{[this](StreamRef, StreamIdentity stream) { retire(stream); }};

  void retire(StreamIdentity stream);
};

}  // namespace cgtree
