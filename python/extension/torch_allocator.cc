// The allocator that PyTorch calls: inside a step function it allocates from the pool of the
// context, and elsewhere from a caching allocator over the segments that all contexts of the device
// share. A sharded table of all blocks has the origin of each.
//
// Source of the two signatures: torch.cuda.memory.CUDAPluggableAllocator.
#include "base/mutex.h"
#include "python/extension/module.h"

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/frame.h"
#include "base/log_event.h"
#include "caching/device_allocator.h"
#include "cgtree/memory/declared_memory.h"
#include "cgtree/record/step.h"
#include "interop/exchange/lent_memory.h"
#include "interop/tensor/empty.h"
#include "python/extension/tensor.h"

namespace cgtree::python {
namespace {

// The message of a thread's last failed allocation; PyTorch makes a RuntimeError of it.
struct RanOut {
  std::optional<std::string> message;
};
// The place where step functions of a thread allocate. PyTorch may still allocate while the thread
// ends.
struct AllocatesFrom {
  bool steps = true;  // the pools of the step functions
};

struct Block {
  Lease lease;                        // of a step function's pool; empty for other memory
  DeviceAllocator* memory = nullptr;  // source of other memory
  std::size_t bytes = 0;
  // The declared memory of the context whose step function made PyTorch's own pool grow. Its
  // recordings may refer to the block as long as PyTorch has the block.
  std::weak_ptr<DeclaredMemory> declared;
};

std::string name_of(const void* block) {
  return str_format("PyTorch's pool at {}", block);
}

// TorchMemory belongs to the process, as PyTorch's allocator does. It is never destroyed, because
// PyTorch frees at exit.
struct TorchMemory {
  std::atomic<DeviceType> type{DeviceType::kCuda};

  // Threads that allocate at the same time seldom need the same shard.
  struct alignas(64) Shard {
    Mutex<LockRank::kTorchMemory> mutex;  // guards all below
    std::unordered_map<void*, Block> blocks;
    std::uint64_t allocations = 0;
    std::uint64_t from_steps = 0;
  };
  std::array<Shard, 64> shards;
  Shard& shard_of(const void* block) {
    return shards[reinterpret_cast<std::uintptr_t>(block) * 0x9e3779b97f4a7c15 >> 58];
  }

  // The memory of the last request is found without the lock.
  DeviceAllocator& memory_of(Device device) {
    DeviceAllocator* last = last_used.load(std::memory_order_acquire);
    if (last == nullptr || last->device() != device) {
      const std::lock_guard lock(mutex);
      std::shared_ptr<DeviceAllocator>& memory = devices[device];
      if (memory == nullptr) memory = DeviceAllocator::shared(device);
      last = memory.get();
      last_used.store(last, std::memory_order_release);
    }
    return *last;
  }

 private:
  std::atomic<DeviceAllocator*> last_used{nullptr};
  Mutex<LockRank::kTorchDevices> mutex;  // guards the members below, from which nothing is removed
  std::map<Device, std::shared_ptr<DeviceAllocator>> devices;
};

TorchMemory& torch_memory() {
  static TorchMemory* const memory = new TorchMemory;
  return *memory;
}

bool is_in_step(Device device) {
  StorageAllocator* const allocator = current_allocator();
  return allocator != nullptr && of_thread<AllocatesFrom>().steps && allocator->device() == device;
}

// The null handle of PyTorch is the legacy stream of `device`. Another stream may belong to another
// device than the block: its identity has the device.
StreamRef from_handle(Device device, void* stream) {
  const auto handle = reinterpret_cast<std::uintptr_t>(stream);
  return StreamRef(device, handle == 0 ? StreamHandle::kLegacy : static_cast<StreamHandle>(handle));
}

void* allocate(std::size_t bytes, int id, void* stream) {
  TorchMemory& memory = torch_memory();
  const Device device{memory.type, id};
  Block block;
  block.bytes = bytes;
  void* data = nullptr;
  if (is_in_step(device)) {
    const Tensor tensor = empty({static_cast<std::int64_t>(bytes)}, DType::kUInt8);
    block.lease = Lease(tensor.storage());
    data = tensor.data();
  } else {
    block.memory = &memory.memory_of(device);
    data = block.memory->allocator().allocate(bytes, recent_stream_id(from_handle(device, stream)));
    if (const ContextMemory* const context = StepScope::innermost(); context != nullptr) {
      context->declared()->declare(name_of(data), {reinterpret_cast<std::uintptr_t>(data), bytes});
      block.declared = context->declared();
    }
  }
  TorchMemory::Shard& shard = memory.shard_of(data);
  const std::lock_guard lock(shard.mutex);
  ++shard.allocations;
  shard.from_steps += block.lease.storage() ? 1 : 0;
  shard.blocks[data] = std::move(block);
  return data;
}

void release(void* data, int id, void* stream) {
  TorchMemory& memory = torch_memory();
  TorchMemory::Shard& shard = memory.shard_of(data);
  Block block;
  {
    const std::lock_guard lock(shard.mutex);
    const auto found = shard.blocks.find(data);
    if (found == shard.blocks.end()) return;
    block = std::move(found->second);
    shard.blocks.erase(found);
  }
  if (block.memory == nullptr) return;
  if (const auto declared = block.declared.lock()) declared->undeclare(name_of(data));
  block.memory->allocator().free(data, recent_stream_id(from_handle({memory.type, id}, stream)));
}

// PyTorch's record_stream(): the block is not reused before the stream's work so far is done.
void use(void* data, void* stream) {
  TorchMemory::Shard& shard = torch_memory().shard_of(data);
  DeviceAllocator* allocator = nullptr;
  StorageRef storage;
  {
    const std::lock_guard lock(shard.mutex);
    const auto found = shard.blocks.find(data);
    if (found == shard.blocks.end()) return;
    allocator = found->second.memory;
    storage = found->second.lease.storage();
  }
  if (allocator == nullptr) return note_use(storage, from_handle(storage->device(), stream));
  allocator->allocator().use(data, stream_id(from_handle(allocator->device(), stream)));
}

// Calls run() for PyTorch, which must not get exceptions from this function.
template <typename Run>
void or_log(std::string_view function, const Run& run) {
  try {
    run();
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "torch_{}_failed error=\"{}\"", function, error.what());
  }
}

// Sets whether step functions of this thread allocate from the pool (default: yes), and the kind of
// device (default: "cuda").
void torch_options(std::optional<bool> use_steps, std::optional<Device> device) {
  if (use_steps) of_thread<AllocatesFrom>().steps = *use_steps;
  if (device) torch_memory().type = device->type;
}

// The blocks and bytes in use, and the number of allocations so far.
Reference torch_statistics() {
  std::size_t blocks = 0, bytes = 0, of_steps = 0;
  std::uint64_t allocations = 0, from_steps = 0;
  for (TorchMemory::Shard& shard : torch_memory().shards) {
    const std::lock_guard lock(shard.mutex);
    blocks += shard.blocks.size();
    for (const auto& [address, block] : shard.blocks) {
      bytes += block.bytes;
      of_steps += block.lease.storage() ? 1 : 0;
    }
    allocations += shard.allocations;
    from_steps += shard.from_steps;
  }
  return new_dict("blocks", blocks, "bytes", bytes, "blocks_of_steps", of_steps, "allocations",
                  allocations, "from_steps", from_steps);
}

}  // namespace

void add_torch_allocator(PyObject* module) {
  add_functions(
      module,
      {bind_function<&torch_options>("torch_options"),
       bind_function<&torch_statistics>("torch_statistics"),
       bind_function<[] { return std::exchange(of_thread<RanOut>().message, std::nullopt); }>(
           "torch_ran_out")});
}

}  // namespace cgtree::python

// The functions that PyTorch calls, on any thread.
#define CGTREE_TORCH extern "C" __attribute__((visibility("default")))

// Throws cgtree::OutOfMemory, which PyTorch reports as a RuntimeError.
CGTREE_TORCH void* cgtree_torch_alloc(ssize_t bytes, int device, void* stream) {
  if (bytes <= 0) return nullptr;
  try {
    return cgtree::python::allocate(static_cast<std::size_t>(bytes), device, stream);
  } catch (const cgtree::OutOfMemory& error) {
    cgtree::of_thread<cgtree::python::RanOut>().message = error.what();
    throw;
  }
}

// PyTorch frees at exit too, after the driver has ended.
CGTREE_TORCH void cgtree_torch_free(void* data, ssize_t, int device, void* stream) {
  if (!cgtree::python::interpreter_is_alive()) return;
  cgtree::python::or_log("free", [&] { cgtree::python::release(data, device, stream); });
}

CGTREE_TORCH void cgtree_torch_record_stream(void* data, void* stream) {
  cgtree::python::or_log("record_stream", [&] { cgtree::python::use(data, stream); });
}
