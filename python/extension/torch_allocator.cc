// The allocator that PyTorch calls: inside a step function it allocates from the pool of the
// context, and elsewhere from a caching allocator over the segments that all contexts of the device
// share. One table of all blocks says where each block came from.
//
// Source of the two signatures: torch.cuda.memory.CUDAPluggableAllocator.
#include "python/extension/module.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "allocator/caching/device_allocator.h"
#include "base/error.h"
#include "base/log.h"
#include "cgtree/memory/declared_memory.h"
#include "cgtree/record/step.h"
#include "interop/exchange/lent_memory.h"
#include "interop/tensor/empty.h"
#include "python/extension/errors.h"
#include "python/extension/tensor.h"
#include "python/extension/values.h"

extern "C" {
// Throws cgtree::OutOfMemory, which PyTorch reports as a RuntimeError. Thread safety: any thread.
__attribute__((visibility("default"))) void* cgtree_torch_alloc(ssize_t bytes, int device,
                                                                void* stream);
__attribute__((visibility("default"))) void cgtree_torch_free(void* data, ssize_t bytes, int device,
                                                              void* stream);
__attribute__((visibility("default"))) void cgtree_torch_record_stream(void* data, void* stream);
}

namespace cgtree::python {
namespace {

struct Block {
  Lease lease;                         // of a step function's pool; empty for everything else
  CachingAllocator* memory = nullptr;  // where everything else came from
  std::size_t bytes = 0;
  // Of the context whose step function made PyTorch's own pool grow. Its recordings may refer to
  // the block as long as PyTorch has it.
  std::weak_ptr<DeclaredMemory> declared;
};

std::string name_of(const void* block) {
  return fmt::format("PyTorch's pool at {}", block);
}

// TorchMemory belongs to the process, as PyTorch's allocator does. It is never destroyed, because
// PyTorch frees at exit.
struct TorchMemory {
  std::atomic<bool> uses_steps{true};
  std::atomic<DeviceType> type{DeviceType::kCuda};
  std::mutex mutex;  // guards all below
  std::unordered_map<void*, Block> blocks;
  std::map<Device, std::shared_ptr<DeviceAllocator>> devices;
  std::uint64_t allocations = 0;
  std::uint64_t from_steps = 0;

  CachingAllocator& memory_of(Device device) {
    std::shared_ptr<DeviceAllocator>& memory = devices[device];
    if (memory == nullptr) memory = DeviceAllocator::shared(device);
    return memory->allocator();
  }
};

TorchMemory& torch_memory() {
  static TorchMemory* const memory = new TorchMemory;
  return *memory;
}

bool is_in_step(TorchMemory& memory, Device device) {
  StorageAllocator* const allocator = current_allocator();
  return allocator != nullptr && memory.uses_steps && allocator->device() == device;
}

void* allocate(std::size_t bytes, int id, void* stream) {
  TorchMemory& memory = torch_memory();
  const Device device{memory.type, id};
  Block block;
  block.bytes = bytes;
  void* data = nullptr;
  if (is_in_step(memory, device)) {
    const Tensor tensor = empty({static_cast<std::int64_t>(bytes)}, DType::kUInt8);
    block.lease = Lease(tensor.storage());
    data = tensor.data();
  } else {
    {
      const std::lock_guard lock(memory.mutex);
      block.memory = &memory.memory_of(device);
    }
    data = block.memory->allocate(bytes, reinterpret_cast<StreamId>(stream));
    if (const ContextMemory* const context = StepScope::innermost(); context != nullptr) {
      context->declared()->declare(name_of(data), {reinterpret_cast<std::uintptr_t>(data), bytes});
      block.declared = context->declared();
    }
  }
  const std::lock_guard lock(memory.mutex);
  ++memory.allocations;
  memory.from_steps += block.lease.storage() ? 1 : 0;
  memory.blocks[data] = std::move(block);
  return data;
}

void release(void* data, void* stream) {
  TorchMemory& memory = torch_memory();
  Block block;
  {
    const std::lock_guard lock(memory.mutex);
    const auto found = memory.blocks.find(data);
    if (found == memory.blocks.end()) return;
    block = std::move(found->second);
    memory.blocks.erase(found);
  }
  if (block.memory == nullptr) return;
  if (const auto declared = block.declared.lock()) declared->undeclare(name_of(data));
  block.memory->free(data, reinterpret_cast<StreamId>(stream));
}

// PyTorch's record_stream(): the block is not reused before the stream's work so far is done.
void use(void* data, void* stream) {
  TorchMemory& memory = torch_memory();
  CachingAllocator* allocator = nullptr;
  StorageRef storage;
  {
    const std::lock_guard lock(memory.mutex);
    const auto found = memory.blocks.find(data);
    if (found == memory.blocks.end()) return;
    allocator = found->second.memory;
    storage = found->second.lease.storage();
  }
  if (allocator != nullptr) return allocator->use(data, reinterpret_cast<StreamId>(stream));
  const auto handle = reinterpret_cast<std::uintptr_t>(stream);
  note_use(storage, StreamRef(storage->device(), handle == 0 ? StreamHandle::kLegacy
                                                             : static_cast<StreamHandle>(handle)));
}

}  // namespace

PyObject* torch_options(PyObject*, PyObject*, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    static constexpr std::array kNames = {"use_steps", "device"};
    expect_keywords(keywords, kNames, "torch_options");
    TorchMemory& memory = torch_memory();
    if (PyObject* use = find_keyword(keywords, "use_steps")) memory.uses_steps = to_bool(use);
    if (PyObject* device = find_keyword(keywords, "device")) memory.type = to_device(device).type;
    Py_RETURN_NONE;
  });
}

PyObject* torch_statistics(PyObject*, PyObject*) {
  return guarded([&] {
    TorchMemory& memory = torch_memory();
    const std::lock_guard lock(memory.mutex);
    std::size_t bytes = 0;
    for (const auto& [address, block] : memory.blocks)
      bytes += block.bytes;
    return checked(Py_BuildValue("{s:n,s:n,s:K,s:K}", "blocks",
                                 static_cast<Py_ssize_t>(memory.blocks.size()), "bytes",
                                 static_cast<Py_ssize_t>(bytes), "allocations",
                                 static_cast<unsigned long long>(memory.allocations), "from_steps",
                                 static_cast<unsigned long long>(memory.from_steps)))
        .release();
  });
}

}  // namespace cgtree::python

void* cgtree_torch_alloc(ssize_t bytes, int device, void* stream) {
  if (bytes <= 0) return nullptr;
  return cgtree::python::allocate(static_cast<std::size_t>(bytes), device, stream);
}

void cgtree_torch_free(void* data, ssize_t, int, void* stream) {
  try {
    cgtree::python::release(data, stream);
  } catch (const std::exception& error) {
    cgtree::log_event(cgtree::LogLevel::kError, "torch_free_failed error=\"{}\"", error.what());
  }
}

void cgtree_torch_record_stream(void* data, void* stream) {
  try {
    cgtree::python::use(data, stream);
  } catch (const std::exception& error) {
    cgtree::log_event(cgtree::LogLevel::kError, "torch_record_stream_failed error=\"{}\"",
                      error.what());
  }
}
