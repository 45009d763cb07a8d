// Allocates from the C library and registers each allocation; reserves addresses with mmap and maps
// anonymous files there.
#include "simulator/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <iterator>
#include <new>

#include "interop/device/device_api.h"
#include "simulator/strict_memory.h"

namespace cgtree::host {
namespace {

std::size_t physical_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

HostMemory::HostMemory(StrictMemory* checker, int devices)
    : checker_(checker), devices_(devices), total_(physical_memory()) {
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
  constexpr std::size_t kUnit = kDataSpaceAlignment;
  return std::aligned_alloc(kUnit, (bytes + kUnit - 1) / kUnit * kUnit);
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

HostMemory::Live::const_iterator HostMemory::find(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  const auto after = live_.upper_bound(const_cast<std::byte*>(byte));
  if (after == live_.begin()) return live_.end();
  const auto found = std::prev(after);
  return byte < found->first + found->second.bytes ? found : live_.end();
}

bool HostMemory::owns(const void* address) const {
  const std::lock_guard lock(mutex_);
  return find(address) != live_.end();
}

DeviceAllocation HostMemory::allocation_of(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto found = find(address);
  if (found == live_.end()) return {};
  const auto& [begin, allocation] = *found;
  const bool is_pinned = allocation.kind == MemoryKind::kPinned;
  return {is_pinned ? PointerAttributes{PointerKind::kPinned, 0}
                    : PointerAttributes{PointerKind::kDevice, allocation.device},
          reinterpret_cast<std::uintptr_t>(begin), allocation.bytes};
}

std::shared_ptr<OrderedMemory> OrderedMemory::make(HostMemory& memory, int device,
                                                   std::size_t bytes, bool is_of_graph) {
  void* data = nullptr;
  if (!ok(memory.allocate(MemoryKind::kOrdered, device, bytes, &data))) return nullptr;
  return std::shared_ptr<OrderedMemory>(new OrderedMemory(memory, data, bytes, is_of_graph));
}

std::size_t HostMemory::free() const {
  const std::lock_guard lock(mutex_);
  return total_ - in_use_;
}

namespace {

bool is_granular(std::size_t bytes) {
  return bytes > 0 && bytes % HostMemory::kGranularity == 0;
}

// Returns the pages to the system and keeps the addresses.
bool make_inaccessible(void* address, std::size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return mmap(address, bytes, PROT_NONE, flags, -1, 0) != MAP_FAILED;
}

}  // namespace

Code HostMemory::granularity(int id, std::size_t* bytes) {
  if (!exists(id)) return Code::kInvalidDevice;
  *bytes = kGranularity;
  return Code::kSuccess;
}

Code HostMemory::reserve(int id, std::size_t bytes, void** address) {
  if (!exists(id)) return Code::kInvalidDevice;
  if (!is_granular(bytes)) return Code::kInvalidValue;
  // Reserves more, to align the range, and returns both ends.
  const std::size_t taken = bytes + kGranularity;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const memory = mmap(nullptr, taken, PROT_NONE, flags, -1, 0);
  if (memory == MAP_FAILED) return Code::kMemoryAllocation;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t aligned = (begin + kGranularity - 1) / kGranularity * kGranularity;
  if (aligned > begin) munmap(memory, aligned - begin);
  munmap(reinterpret_cast<void*>(aligned + bytes), begin + kGranularity - aligned);
  const std::lock_guard lock(mutex_);
  reserved_.emplace(reinterpret_cast<std::byte*>(aligned), bytes);
  *address = reinterpret_cast<void*>(aligned);
  return Code::kSuccess;
}

Code HostMemory::free_reserved(void* address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reserved_.find(static_cast<std::byte*>(address));
  if (found == reserved_.end() || found->second != bytes) return Code::kInvalidValue;
  if (has_memory_in(found->first, bytes)) return Code::kInvalidValue;
  munmap(address, bytes);
  reserved_.erase(found);
  return Code::kSuccess;
}

Code HostMemory::create(int id, std::size_t bytes, PhysicalMemory* memory) {
  if (!exists(id)) return Code::kInvalidDevice;
  if (!is_granular(bytes)) return Code::kInvalidValue;
  const std::lock_guard lock(mutex_);
  if (bytes > total_ - in_use_) return Code::kMemoryAllocation;
  const int file = memfd_create("cgtree", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    if (file >= 0) close(file);
    return Code::kMemoryAllocation;
  }
  *memory = static_cast<PhysicalMemory>(++last_name_);
  physical_.emplace(*memory, Physical{file, bytes});
  in_use_ += bytes;
  return Code::kSuccess;
}

Code HostMemory::release(PhysicalMemory memory) {
  const std::lock_guard lock(mutex_);
  const auto found = physical_.find(memory);
  if (found == physical_.end() || found->second.released) return Code::kInvalidValue;
  found->second.released = true;
  drop_if_unused(found);
  return Code::kSuccess;
}

void HostMemory::drop_if_unused(std::map<PhysicalMemory, Physical>::iterator physical) {
  if (physical->second.mappings > 0 || !physical->second.released) return;
  close(physical->second.file);
  in_use_ -= physical->second.bytes;
  physical_.erase(physical);
}

Code HostMemory::map(int id, void* address, std::size_t bytes, PhysicalMemory memory) {
  if (!exists(id)) return Code::kInvalidDevice;
  const std::lock_guard lock(mutex_);
  const auto found = physical_.find(memory);
  if (found == physical_.end() || found->second.released) return Code::kInvalidValue;
  auto* const begin = static_cast<std::byte*>(address);
  const bool aligned = reinterpret_cast<std::uintptr_t>(begin) % kGranularity == 0;
  if (!aligned || bytes != found->second.bytes || !is_reserved(begin, bytes) ||
      has_memory_in(begin, bytes)) {
    return Code::kInvalidValue;
  }
  const void* const mapped =
      mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, found->second.file, 0);
  if (mapped == MAP_FAILED) return Code::kMemoryAllocation;
  live_.emplace(begin, Allocation{MemoryKind::kMapped, id, bytes, memory});
  if (checker_ != nullptr) checker_->adopt(address, bytes, "a mapping");
  ++found->second.mappings;
  return Code::kSuccess;
}

Code HostMemory::unmap(void* address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto* const begin = static_cast<std::byte*>(address);
  if (is_reserved(begin, bytes) && !has_memory_in(begin, bytes)) return Code::kSuccess;
  if (!is_whole_mappings(begin, bytes)) return Code::kInvalidValue;
  if (!make_inaccessible(address, bytes)) return Code::kMemoryAllocation;
  for (auto position = live_.find(begin);
       position != live_.end() && position->first < begin + bytes;) {
    const auto physical = physical_.find(position->second.physical);
    if (checker_ != nullptr) checker_->disown(position->first);
    --physical->second.mappings;
    drop_if_unused(physical);
    position = live_.erase(position);
  }
  return Code::kSuccess;
}

bool HostMemory::is_whole_mappings(std::byte* address, std::size_t bytes) const {
  std::byte* position = address;
  for (auto found = live_.find(address); found != live_.end() && found->first == position;
       ++found) {
    if (found->second.kind != MemoryKind::kMapped) return false;
    position += found->second.bytes;
    if (position == address + bytes) return true;
  }
  return false;
}

bool HostMemory::is_reserved(const std::byte* address, std::size_t bytes) const {
  auto after = reserved_.upper_bound(const_cast<std::byte*>(address));
  if (after == reserved_.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return bytes <= size && static_cast<std::size_t>(address - begin) <= size - bytes;
}

bool HostMemory::has_memory_in(std::byte* address, std::size_t bytes) const {
  const auto after = live_.lower_bound(address + bytes);
  if (after == live_.begin()) return false;
  const auto& [begin, allocation] = *std::prev(after);
  return begin + allocation.bytes > address;
}

}  // namespace cgtree::host
