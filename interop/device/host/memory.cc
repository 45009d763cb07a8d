// Allocates from the C library and registers each allocation.
#include "interop/device/host/memory.h"

#include <unistd.h>

#include <cstdlib>
#include <iterator>
#include <new>

namespace cgtree::host {
namespace {

std::size_t physical_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

HostMemory::HostMemory(MemoryChecker* checker) : checker_(checker), total_(physical_memory()) {
}

Code HostMemory::allocate(MemoryKind kind, int device, std::size_t bytes, void** data) {
  if (bytes == 0) {
    *data = nullptr;
    return Code::kSuccess;
  }
  const std::lock_guard lock(mutex_);
  if (bytes > total_ - in_use_) return Code::kMemoryAllocation;
  void* const memory = take(kind, bytes);
  if (memory == nullptr) return Code::kMemoryAllocation;
  try {
    live_.emplace(static_cast<std::byte*>(memory), Allocation{kind, device, bytes});
  } catch (const std::bad_alloc&) {
    give_back(memory);
    return Code::kMemoryAllocation;
  }
  in_use_ += bytes;
  *data = memory;
  return Code::kSuccess;
}

void* HostMemory::take(MemoryKind kind, std::size_t bytes) {
  if (checker_ != nullptr) {
    return checker_->allocate(kind == MemoryKind::kPinned ? "pinned" : "data space", bytes);
  }
  return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

void HostMemory::give_back(void* data) {
  checker_ != nullptr ? checker_->free(data) : std::free(data);
}

Code HostMemory::release(MemoryKind kind, void* data) {
  if (data == nullptr) return Code::kSuccess;
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(static_cast<std::byte*>(data));
  if (found == live_.end() || found->second.kind != kind) return Code::kInvalidValue;
  in_use_ -= found->second.bytes;
  live_.erase(found);
  give_back(data);
  return Code::kSuccess;
}

void HostMemory::add_mapping(int device, void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  live_.emplace(static_cast<std::byte*>(data), Allocation{MemoryKind::kMapped, device, bytes});
  if (checker_ != nullptr) checker_->adopt(data, bytes, "a mapping");
}

void HostMemory::remove_mapping(void* data) {
  const std::lock_guard lock(mutex_);
  live_.erase(static_cast<std::byte*>(data));
  if (checker_ != nullptr) checker_->disown(data);
}

const HostMemory::Allocation* HostMemory::find(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  const auto after = live_.upper_bound(const_cast<std::byte*>(byte));
  if (after == live_.begin()) return nullptr;
  const auto& [begin, allocation] = *std::prev(after);
  return byte < begin + allocation.bytes ? &allocation : nullptr;
}

bool HostMemory::owns(const void* address) const {
  const std::lock_guard lock(mutex_);
  return find(address) != nullptr;
}

PointerAttributes HostMemory::attributes(const void* address) const {
  const std::lock_guard lock(mutex_);
  const Allocation* const found = find(address);
  if (found == nullptr) return {};
  if (found->kind == MemoryKind::kPinned) return {PointerKind::kPinned, 0};
  return {PointerKind::kDevice, found->device};
}

bool HostMemory::count(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > total_ - in_use_) return false;
  in_use_ += bytes;
  return true;
}

void HostMemory::discount(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  in_use_ -= bytes;
}

std::size_t HostMemory::free() const {
  const std::lock_guard lock(mutex_);
  return total_ - in_use_;
}

}  // namespace cgtree::host
