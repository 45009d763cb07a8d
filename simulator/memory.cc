// Allocates from the C library and registers each allocation; reserves addresses with mmap and maps
// anonymous files there.
#include "simulator/memory.h"

#include <sys/mman.h>
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

namespace {

bool is_granular(std::size_t bytes) {
  return bytes > 0 && bytes % HostVirtualMemory::kGranularity == 0;
}

// Returns the pages to the system and keeps the addresses.
bool make_inaccessible(void* address, std::size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return mmap(address, bytes, PROT_NONE, flags, -1, 0) != MAP_FAILED;
}

}  // namespace

Code HostVirtualMemory::granularity(int id, std::size_t* bytes) {
  if (!exists(id)) return Code::kInvalidDevice;
  *bytes = kGranularity;
  return Code::kSuccess;
}

Code HostVirtualMemory::reserve(int id, std::size_t bytes, void** address) {
  if (!exists(id)) return Code::kInvalidDevice;
  if (!is_granular(bytes)) return Code::kInvalidValue;
  // Reserves more, to align the range, and cuts both ends off.
  const std::size_t taken = bytes + kGranularity;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const memory = mmap(nullptr, taken, PROT_NONE, flags, -1, 0);
  if (memory == MAP_FAILED) return Code::kMemoryAllocation;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t aligned = (begin + kGranularity - 1) / kGranularity * kGranularity;
  if (aligned > begin) munmap(memory, aligned - begin);
  munmap(reinterpret_cast<void*>(aligned + bytes), begin + kGranularity - aligned);
  const std::lock_guard lock(mutex_);
  reserved_.emplace(reinterpret_cast<char*>(aligned), bytes);
  *address = reinterpret_cast<void*>(aligned);
  return Code::kSuccess;
}

Code HostVirtualMemory::free_reserved(void* address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reserved_.find(static_cast<char*>(address));
  if (found == reserved_.end() || found->second != bytes) return Code::kInvalidValue;
  if (has_mapping_in(found->first, bytes)) return Code::kInvalidValue;
  munmap(address, bytes);
  reserved_.erase(found);
  return Code::kSuccess;
}

Code HostVirtualMemory::create(int id, std::size_t bytes, PhysicalMemory* memory) {
  if (!exists(id)) return Code::kInvalidDevice;
  if (!is_granular(bytes)) return Code::kInvalidValue;
  if (!memory_.count(bytes)) return Code::kMemoryAllocation;
  const int file = memfd_create("cgtree", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    if (file >= 0) close(file);
    memory_.discount(bytes);
    return Code::kMemoryAllocation;
  }
  const std::lock_guard lock(mutex_);
  physical_.emplace(++last_name_, Physical{file, bytes});
  *memory = static_cast<PhysicalMemory>(last_name_);
  return Code::kSuccess;
}

Code HostVirtualMemory::release(PhysicalMemory memory) {
  const std::lock_guard lock(mutex_);
  const auto found = physical_.find(static_cast<std::uint64_t>(memory));
  if (found == physical_.end() || found->second.released) return Code::kInvalidValue;
  found->second.released = true;
  drop_if_unused(found);
  return Code::kSuccess;
}

void HostVirtualMemory::drop_if_unused(std::map<std::uint64_t, Physical>::iterator physical) {
  if (physical->second.mappings > 0 || !physical->second.released) return;
  close(physical->second.file);
  memory_.discount(physical->second.bytes);
  physical_.erase(physical);
}

Code HostVirtualMemory::map(int id, void* address, std::size_t bytes, PhysicalMemory memory) {
  if (!exists(id)) return Code::kInvalidDevice;
  const std::lock_guard lock(mutex_);
  const auto found = physical_.find(static_cast<std::uint64_t>(memory));
  if (found == physical_.end() || found->second.released) return Code::kInvalidValue;
  char* const begin = static_cast<char*>(address);
  const bool aligned = reinterpret_cast<std::uintptr_t>(begin) % kGranularity == 0;
  if (!aligned || bytes != found->second.bytes || !is_reserved(begin, bytes) ||
      has_mapping_in(begin, bytes)) {
    return Code::kInvalidValue;
  }
  const void* const mapped =
      mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, found->second.file, 0);
  if (mapped == MAP_FAILED) return Code::kMemoryAllocation;
  mapped_.emplace(begin, Mapping{bytes, found->first});
  memory_.add_mapping(id, address, bytes);
  ++found->second.mappings;
  return Code::kSuccess;
}

Code HostVirtualMemory::unmap(void* address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  char* const begin = static_cast<char*>(address);
  if (is_reserved(begin, bytes) && !has_mapping_in(begin, bytes)) return Code::kSuccess;
  if (!is_whole_mappings(begin, bytes)) return Code::kInvalidValue;
  if (!make_inaccessible(address, bytes)) return Code::kMemoryAllocation;
  for (auto position = mapped_.find(begin);
       position != mapped_.end() && position->first < begin + bytes;) {
    const auto physical = physical_.find(position->second.physical);
    memory_.remove_mapping(position->first);
    --physical->second.mappings;
    drop_if_unused(physical);
    position = mapped_.erase(position);
  }
  return Code::kSuccess;
}

bool HostVirtualMemory::is_whole_mappings(char* address, std::size_t bytes) const {
  char* position = address;
  for (auto found = mapped_.find(address); found != mapped_.end() && found->first == position;
       ++found) {
    position += found->second.bytes;
    if (position == address + bytes) return true;
  }
  return false;
}

bool HostVirtualMemory::is_reserved(const char* address, std::size_t bytes) const {
  auto after = reserved_.upper_bound(const_cast<char*>(address));
  if (after == reserved_.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return bytes <= size && static_cast<std::size_t>(address - begin) <= size - bytes;
}

bool HostVirtualMemory::has_mapping_in(char* address, std::size_t bytes) const {
  const auto after = mapped_.lower_bound(address + bytes);
  if (after == mapped_.begin()) return false;
  const auto& [begin, mapping] = *std::prev(after);
  return begin + mapping.bytes > address;
}

}  // namespace cgtree::host
