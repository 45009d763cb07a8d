// Makes the shared memory of each device.
#include "allocator/device/device_memory.h"

#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree {
namespace {

std::unique_ptr<DeviceStreamEvents> events_of(Device device) {
  if (device_api(device).graphs() == nullptr) return nullptr;
  return std::make_unique<DeviceStreamEvents>(device);
}

// The registry belongs to the process, as the devices do.
struct Registry {
  Mutex<LockRank::kDevices> mutex;
  std::map<Device, std::weak_ptr<DeviceMemory>> memories;  // guarded by mutex
};

Registry& registry() {
  static auto* const made = new Registry;  // outlives every static that uses it
  return *made;
}

}  // namespace

DeviceMemory::DeviceMemory(Device device, SegmentSource* segments)
    : device_(device),
      source_(device),
      events_(events_of(device)),
      budget_(segments == nullptr ? to_string(device) : "device"),
      cache_(segments == nullptr ? source_ : *segments, &budget_, events_.get()) {
}

DeviceMemory::~DeviceMemory() {
  client_.reset();
  (void)cache_.progress().wait_all();  // for freed blocks in use
  collect();
}

std::shared_ptr<DeviceMemory> DeviceMemory::shared(Device device) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<DeviceMemory>& known = all.memories[device];
  std::shared_ptr<DeviceMemory> memory = known.lock();
  if (memory == nullptr) known = memory = std::make_shared<DeviceMemory>(device);
  return memory;
}

void DeviceMemory::retire(StreamIdentity stream) {
  if (stream == StreamIdentity::kNone) return;  // it has no name yet
  const auto id = static_cast<StreamId>(stream);
  on_retire_.call_until([id](const OnRetire& function) {
    function(id);
    return false;
  });
  cache_.progress().retire(id);
}

DeviceMemory::Client DeviceMemory::client(const std::function<Client(DeviceMemory&)>& make) {
  {
    const std::lock_guard lock(mutex_);
    if (client_ != nullptr) return client_;
  }
  Client made = make(*this);
  const std::lock_guard lock(mutex_);
  if (client_ == nullptr) client_ = made;
  return client_;
}

// If host memory for the list runs out, waits for the device. If that fails, the blocks are lost: a
// copy may still use them.
void DeviceMemory::keep_pending(std::unique_ptr<StreamPool> pool,
                                std::shared_ptr<SegmentAccount> account) noexcept {
  try {
    std::list<Ended> ended;
    ended.push_back({std::move(account), std::move(pool)});
    const std::lock_guard lock(mutex_);
    ended_.splice(ended_.end(), ended);
  } catch (const std::bad_alloc&) {
    (void)cache_.progress().wait_all();
    pool->drain();
    if (pool->pending_blocks() > 0) (void)pool.release();
  }
}

// A pool gives its segments back without the lock, because this may wait for the device.
void DeviceMemory::collect() noexcept {
  cache_.progress().poll();
  std::list<Ended> done;
  {
    const std::lock_guard lock(mutex_);
    for (auto ended = ended_.begin(); ended != ended_.end();) {
      const auto next = std::next(ended);
      ended->pool->drain();
      if (ended->pool->pending_blocks() == 0) done.splice(done.end(), ended_, ended);
      ended = next;
    }
  }
  for (Ended& ended : done) {
    ended.pool.reset();
    if (ended.account->source() != nullptr) (void)cache_.trim(ended.account->source());
  }
}

}  // namespace cgtree
