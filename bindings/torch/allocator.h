// TorchAllocator: the allocator of PyTorch's CUDA memory. Inside a step function it allocates from
// the pool of the context, block by block; elsewhere it passes requests to PyTorch's own allocator.
//
// Compiled where PyTorch's headers are, for PyTorch 2.11. Each block knows which allocator frees
// it, so this allocator may be installed at any time, even after allocations.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "bindings/torch/tensors.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree {

// Returns the same stream; PyTorch calls the legacy stream null.
inline StreamRef from_torch_stream(c10::cuda::CUDAStream stream) {
  const auto handle = reinterpret_cast<std::uintptr_t>(stream.stream());
  return {Device::cuda(stream.device_index()),
          handle == 0 ? StreamHandle::kLegacy : static_cast<StreamHandle>(handle)};
}

// Returns the same stream; the legacy stream is PyTorch's default.
inline c10::cuda::CUDAStream to_torch_stream(StreamRef stream) {
  const auto device = static_cast<c10::DeviceIndex>(stream.device().id);
  if (stream.handle() == StreamHandle::kLegacy) return c10::cuda::getDefaultCUDAStream(device);
  return c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream.native()), device);
}

// Thread safety: any thread; each thread's step function decides the source of its memory.
class TorchAllocator final : public c10::cuda::CUDACachingAllocator::CUDAAllocator {
 public:
  // Makes it the allocator of the process permanently, once. PyTorch has one allocator for all
  // threads, and frees at exit.
  static void install() {
    static TorchAllocator* const installed = [] {
      auto* const own = new TorchAllocator(*c10::cuda::CUDACachingAllocator::get());
      c10::cuda::CUDACachingAllocator::allocator.store(own);
      c10::SetAllocator(c10::kCUDA, own);
      return own;
    }();
    static_cast<void>(installed);
  }

 private:
  // Throws OutOfMemory inside a step function.
  c10::DataPtr allocate(std::size_t bytes) override {
    if (!is_in_step()) return base_.allocate(bytes);
    const c10::Device device(c10::kCUDA, c10::cuda::current_device());
    if (bytes == 0) return {nullptr, device};
    return detail::lend(allocate_in_step(bytes, c10::cuda::getCurrentCUDAStream()), 0, device);
  }
  void* raw_alloc(std::size_t bytes) override {
    if (!is_in_step() || bytes == 0) return base_.raw_alloc(bytes);
    return keep(allocate_in_step(bytes, c10::cuda::getCurrentCUDAStream()));
  }
  void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override {
    if (!is_in_step() || bytes == 0) return base_.raw_alloc_with_stream(bytes, stream);
    return keep(allocate_in_step(
        bytes, c10::cuda::getStreamFromExternal(stream, c10::cuda::current_device())));
  }
  void raw_delete(void* data) override {
    if (!forget(data)) base_.raw_delete(data);
  }
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    const detail::LentStorage* const lent = detail::LentStorage::find(data);
    if (lent == nullptr) return base_.recordStream(data, stream);
    note_use(lent->storage, from_torch_stream(stream));
  }
  using CUDAAllocator::recordStream;

  // Passed on to PyTorch's own allocator.
  c10::DeleterFnPtr raw_deleter() const override { return base_.raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    base_.copy_data(to, from, bytes);
  }
  bool initialized() override { return base_.initialized(); }
  void emptyCache(c10::MempoolId_t pool) override { base_.emptyCache(pool); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return base_.getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    base_.resetAccumulatedStats(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override { base_.resetPeakStats(device); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return base_.getMemoryInfo(device);
  }
  void init(int devices) override { base_.init(devices); }
  double getMemoryFraction(c10::DeviceIndex device) override {
    return base_.getMemoryFraction(device);
  }
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    base_.setMemoryFraction(fraction, device);
  }
  std::vector<c10::cuda::CUDACachingAllocator::StreamSegmentSize> getExpandableSegmentSizes(
      c10::DeviceIndex device) override {
    return base_.getExpandableSegmentSizes(device);
  }
  void enable(bool value) override { base_.enable(value); }
  bool isEnabled() const override { return base_.isEnabled(); }
  void cacheInfo(c10::DeviceIndex device, std::size_t* largest) override {
    base_.cacheInfo(device, largest);
  }
  void* getBaseAllocation(void* data, std::size_t* bytes) override {
    return base_.getBaseAllocation(data, bytes);
  }
  c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot(c10::MempoolId_t pool,
                                                         bool traces) override {
    return base_.snapshot(pool, traces);
  }
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    base_.beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    base_.endAllocateToPool(device, pool);
  }
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    base_.releasePool(device, pool);
  }
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    return base_.getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> allocator) override {
    base_.createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use) override {
    base_.setUseOnOOM(device, pool, use);
  }
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    base_.setNoSplit(device, pool);
  }
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return base_.checkPoolLiveAllocations(device, pool, expected);
  }
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void* data) override {
    return base_.shareIpcHandle(data);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return base_.getIpcDevPtr(std::move(handle));
  }
  bool isHistoryEnabled() override { return base_.isHistoryEnabled(); }
  void recordHistory(bool enabled, c10::cuda::CUDACachingAllocator::CreateContextFn recorder,
                     std::size_t entries, c10::cuda::CUDACachingAllocator::RecordContext when,
                     bool clear, const std::vector<std::string>& skipped) override {
    base_.recordHistory(enabled, recorder, entries, when, clear, skipped);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& data) override {
    base_.recordAnnotation(data);
  }
  void pushCompileContext(std::string& data) override { base_.pushCompileContext(data); }
  void popCompileContext() override { base_.popCompileContext(); }
  void setUserMetadata(const std::string& data) override { base_.setUserMetadata(data); }
  std::string getUserMetadata() override { return base_.getUserMetadata(); }
  void attachOutOfMemoryObserver(
      c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) override {
    base_.attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(
      c10::cuda::CUDACachingAllocator::AllocatorTraceTracker tracker) override {
    base_.attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex other) override {
    base_.enablePeerAccess(device, other);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t bytes, cudaStream_t stream, bool peer) override {
    return base_.memcpyAsync(to, to_device, from, from_device, bytes, stream, peer);
  }
  std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> getCheckpointState(
      c10::DeviceIndex device, c10::MempoolId_t pool) override {
    return base_.getCheckpointState(device, pool);
  }
  c10::cuda::CUDACachingAllocator::CheckpointDelta setCheckpointPoolState(
      c10::DeviceIndex device,
      std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> state) override {
    return base_.setCheckpointPoolState(device, std::move(state));
  }
  std::string name() override { return base_.name(); }

  explicit TorchAllocator(CUDAAllocator& base) noexcept : base_(base) {}

  static bool is_in_step() noexcept {
    const StorageAllocator* const step = current_allocator();
    return step != nullptr && step->device() == Device::cuda(c10::cuda::current_device());
  }

  // `stream` is the stream on which PyTorch works. Memory that it frees there may still be in use
  // when the step continues.
  static StorageRef allocate_in_step(std::size_t bytes, c10::cuda::CUDAStream stream) {
    StorageRef storage = current_allocator()->allocate(bytes);
    const StreamRef user = from_torch_stream(stream);
    if (user.handle() != current_stream_or_none().handle()) note_use(storage, user);
    return storage;
  }

  void* keep(StorageRef storage) {
    void* const data = storage->data();
    const std::lock_guard lock(mutex_);
    kept_[data] = std::move(storage);
    count_.store(kept_.size(), std::memory_order_release);
    return data;
  }
  // Returns false if the memory is not ours.
  bool forget(void* data) {
    if (count_.load(std::memory_order_acquire) == 0) return false;
    StorageRef storage;  // released without the mutex
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(data);
    if (found == kept_.end()) return false;
    storage = std::move(found->second);
    kept_.erase(found);
    count_.store(kept_.size(), std::memory_order_release);
    return true;
  }

  CUDAAllocator& base_;
  Mutex<LockRank::kTorchMemory> mutex_;  // guards kept_
  std::unordered_map<void*, StorageRef> kept_;
  std::atomic<std::size_t> count_{0};
};

}  // namespace cgtree
