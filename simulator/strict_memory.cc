// Fills memory and its surroundings with patterns, and checks ranges.
#include "simulator/strict_memory.h"
#include "base/format.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

namespace cgtree::host {
namespace {

constexpr auto kFresh = std::byte{0xCD};
constexpr auto kFence = std::byte{0xFB};
constexpr auto kFreed = std::byte{0xDB};
constexpr std::size_t kGlance = 4096;  // bytes of a freed block that are checked after each work

void fill(std::byte* begin, std::byte* end, std::byte value) {
  std::fill(begin, end, value);
}

// Returns the first byte that differs from `value`, or null.
std::byte* changed(std::byte* begin, std::byte* end, std::byte value) {
  // Comparing each byte with its neighbour by memcmp is many times faster than a loop.
  const auto bytes = static_cast<std::size_t>(end - begin);
  if (bytes == 0 || (*begin == value && std::memcmp(begin, begin + 1, bytes - 1) == 0)) {
    return nullptr;
  }
  std::byte* const found = std::find_if(begin, end, [&](std::byte byte) { return byte != value; });
  return found == end ? nullptr : found;
}

}  // namespace

StrictMemory::~StrictMemory() {
  for (const auto& [key, block] : blocks_)
    std::free(block.base);
}

void* StrictMemory::allocate(const char* kind, std::size_t bytes) {
  const std::size_t room = (bytes + kZone - 1) / kZone * kZone + 2 * kZone;
  auto* const base = static_cast<std::byte*>(std::aligned_alloc(kZone, room));
  if (base == nullptr) return nullptr;
  std::byte* const begin = base + kZone;
  fill(base, begin, kFence);
  fill(begin, begin + bytes, kFresh);
  fill(begin + bytes, base + room, kFence);
  const std::lock_guard lock(mutex_);
  std::string name = str_format("allocation {} ({} bytes, {})", ++allocations_, bytes, kind);
  insert({begin, bytes, std::move(name), base, room});
  return begin;
}

void StrictMemory::free(void* data) {
  const std::lock_guard lock(mutex_);
  Block& block = const_cast<Block&>(*find(data));
  fill(block.begin, block.begin + block.bytes, kFreed);
  block.is_dead = true;
  quarantine_.push_back(block.base + block.room);
  quarantined_ += block.room;
  shrink_quarantine();
}

// Requires: the mutex is held.
void StrictMemory::shrink_quarantine() {
  while (quarantined_ > kQuarantine) {
    const auto oldest = blocks_.find(quarantine_.front());
    check(oldest->second, oldest->second.bytes, found_late_);
    quarantined_ -= oldest->second.room;
    std::free(oldest->second.base);
    blocks_.erase(oldest);
    quarantine_.pop_front();
  }
}

void StrictMemory::adopt(void* data, std::size_t bytes, std::string name) {
  const std::lock_guard lock(mutex_);
  insert({static_cast<std::byte*>(data), bytes, std::move(name)});
}

void StrictMemory::disown(void* data) {
  const std::lock_guard lock(mutex_);
  const Block* const block = find(data);
  if (block != nullptr) blocks_.erase(block->begin + block->bytes);
}

void StrictMemory::watch(const void* data, std::size_t bytes, std::string owner) {
  const std::lock_guard lock(mutex_);
  auto* const begin = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  insert({begin, bytes, std::move(owner), nullptr, 0, /*is_device=*/false});
}

void StrictMemory::end(const void* data) {
  const std::lock_guard lock(mutex_);
  const Block* const block = find(data);
  if (block != nullptr && !block->is_device) const_cast<Block*>(block)->is_dead = true;
}

// Removes ended host buffers at the same addresses, which may be reused.
void StrictMemory::insert(Block block) {
  const std::byte* const begin = block.base != nullptr ? block.base : block.begin;
  const std::byte* const end =
      block.base != nullptr ? block.base + block.room : block.begin + block.bytes;
  for (auto other = blocks_.upper_bound(begin);
       other != blocks_.end() && other->second.base == nullptr && other->second.begin < end;) {
    other = blocks_.erase(other);
  }
  blocks_.insert_or_assign(end, std::move(block));
}

const StrictMemory::Block* StrictMemory::find(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  const auto found = blocks_.upper_bound(byte);
  if (found == blocks_.end()) return nullptr;
  const Block& block = found->second;
  return byte >= (block.base != nullptr ? block.base : block.begin) ? &block : nullptr;
}

// A range may lie in several adjacent mappings, but in one allocation only.
std::string StrictMemory::objection(const void* address, std::size_t bytes,
                                    bool must_be_device) const {
  const auto* const begin = static_cast<const std::byte*>(address);
  const auto found = blocks_.upper_bound(begin);
  const Block* const block = find(address);
  if (block == nullptr) {
    if (found != blocks_.end() && found->second.begin < begin + bytes) {
      return str_format("{} bytes at {} reach into {}", bytes, address, found->second.name);
    }
    if (!must_be_device) return {};
    return str_format("{} bytes at {} are not the device's memory", bytes, address);
  }
  if (block->is_dead) {
    return str_format("{} bytes at {} lie in {}, which {}", bytes, address, block->name,
                      block->is_device ? "is freed" : "has ended");
  }
  if (must_be_device && !block->is_device) {
    return str_format("{} bytes at {} are {}, not the device's memory", bytes, address,
                      block->name);
  }
  const std::ptrdiff_t offset = begin - block->begin;
  const std::byte* const end = block->begin + block->bytes;
  if (offset >= 0 && begin + bytes <= end) return {};
  if (offset >= 0 && block->base == nullptr && find(end) != nullptr) {
    return objection(end, bytes - static_cast<std::size_t>(end - begin), must_be_device);
  }
  return str_format("bytes {} to {} are not all in {}", offset,
                    offset + static_cast<std::ptrdiff_t>(bytes), block->name);
}

std::string StrictMemory::dangling(const void* address, std::size_t argument) const {
  const Block* const block = find(address);
  if (block == nullptr || !block->is_dead) return {};
  const auto* const byte = static_cast<const std::byte*>(address);
  if (byte < block->begin || byte >= block->begin + block->bytes) return {};
  return str_format("argument {} points to byte {} of {}, which {}", argument, byte - block->begin,
                    block->name, block->is_device ? "is freed" : "has ended");
}

std::string StrictMemory::objection(const Work& work) const {
  const std::lock_guard lock(mutex_);
  if (const auto* copy = std::get_if<CopyWork>(&work)) {
    std::string text = objection(copy->destination, copy->bytes, false);
    return text.empty() && copy->staged == nullptr ? objection(copy->source, copy->bytes, false)
                                                   : text;
  }
  if (const auto* memset = std::get_if<MemsetWork>(&work)) {
    return objection(memset->destination, memset->bytes, true);
  }
  if (const auto* kernel = std::get_if<KernelWork>(&work)) {
    for (const auto& [argument, word] : kernel->arguments.words()) {
      if (std::string text = dangling(word, argument); !text.empty()) return text;
    }
  }
  return {};
}

void StrictMemory::check(Block& block, std::size_t limit, std::string& text) {
  const auto look = [&](std::byte* begin, std::byte* end, std::byte value, const char* what) {
    std::byte* const at = changed(begin, end, value);
    if (at == nullptr) return;
    fill(begin, end, value);
    text += str_format("{}byte {} of {} was written, {}", text.empty() ? "" : "; ",
                       at - block.begin, block.name, what);
  };
  std::byte* const end = block.begin + block.bytes;
  look(block.base, block.begin, kFence, "before its begin");
  look(end, block.base + block.room, kFence, "beyond its end");
  if (!block.is_dead) return;
  look(block.begin, block.begin + std::min(block.bytes, limit), kFreed, "which is freed");
}

std::string StrictMemory::damage(bool is_thorough) {
  const std::lock_guard lock(mutex_);
  std::string text = is_thorough ? std::exchange(found_late_, {}) : std::string();
  for (auto& [key, block] : blocks_) {
    if (block.base != nullptr) check(block, is_thorough ? block.bytes : kGlance, text);
  }
  return text;
}

void StrictMemory::report(std::string finding) {
  const std::lock_guard lock(mutex_);
  findings_.push_back(std::move(finding));
}

std::vector<std::string> StrictMemory::take_findings() {
  const std::lock_guard lock(mutex_);
  return std::exchange(findings_, {});
}

}  // namespace cgtree::host

namespace cgtree {

StrictHostDevice make_strict_host_device(HostDeviceOptions options) {
  StrictHostDevice made;
  made.memory = std::make_shared<host::StrictMemory>();
  options.checker = made.memory;
  made.device = make_host_device(options);
  return made;
}

}  // namespace cgtree
