// Allocates segments of device memory and of pinned host memory, and maps memory at reserved
// addresses.
#include "allocator/segments/device_sources.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#include "interop/device/profiler.h"
#include "interop/device/stream_identity.h"

namespace cgtree {
namespace {

DeviceAPI& mapping_api(Device device) {
  DeviceAPI& api = device_api(device);
  if (api.supports(device.id, DeviceAttribute::kSupportsMapping)) return api;
  throw InvalidArgument(
      str_format("{} cannot map memory into reserved addresses; use a DeviceSegmentSource",
                 to_string(device)));
}

std::size_t granularity_of(DeviceAPI& api, Device device) {
  std::size_t bytes = 0;
  check(api.mapping_granularity(device.id, &bytes),
        str_format("query the granularity of the memory of {}", to_string(device)));
  return bytes;
}

std::size_t round_up_to(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace

void* DeviceSegmentSource::allocate(std::size_t bytes, StreamId) {
  const ProfilerRange range(profiler_listens(), bytes, "grow pool");
  return allocate_device_memory(device_, bytes);
}

void DeviceSegmentSource::free(void* segment, std::size_t, StreamId) noexcept {
  free_device_memory(device_, segment);
}

void* PinnedSegmentSource::allocate(std::size_t bytes, StreamId) {
  return allocate_pinned_memory(device_, bytes);
}

void PinnedSegmentSource::free(void* segment, std::size_t, StreamId) noexcept {
  free_pinned_memory(device_, segment);
}

VirtualSegmentSource::VirtualSegmentSource(Device device, std::size_t reserved_bytes,
                                           std::size_t most_at_once)
    : device_(device),
      api_(mapping_api(device)),
      granularity_(granularity_of(api_, device)),
      reserved_bytes_(round_up_to(reserved_bytes, granularity_)),
      most_at_once_(std::max(most_at_once - most_at_once % granularity_, granularity_)) {
}

VirtualSegmentSource::~VirtualSegmentSource() {
  give_back_freed();
  for (const auto& [segment, reservation] : reservations_) {
    CGTREE_CHECK(reservation.freed);
    log_event(LogLevel::kError, "memory_lost device={} bytes={}", to_string(device_),
              reservation.mapped);
  }
}

std::size_t VirtualSegmentSource::mapped_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [segment, reservation] : reservations_)
    bytes += reservation.mapped - reservation.holes;
  return bytes;
}

void* VirtualSegmentSource::allocate(std::size_t bytes, StreamId) {
  give_back_freed();
  const std::lock_guard lock(mutex_);
  const std::size_t reserved = std::max(reserved_bytes_, round_up_to(bytes, granularity_));
  void* segment = nullptr;
  check(api_.reserve_addresses(device_.id, reserved, &segment),
        str_format("reserve {} bytes of addresses on {}", reserved, to_string(device_)));
  try {
    Reservation& made = reservations_[segment];
    made.reserved = reserved;
    map_up_to(segment, made, bytes);
  } catch (...) {
    reservations_.erase(segment);
    (void)api_.free_addresses(segment, reserved);
    throw;
  }
  return segment;
}

// Maps one piece, or several if their size is limited, so that `bytes` are mapped. Nothing has
// changed if it throws.
void VirtualSegmentSource::map_up_to(void* segment, Reservation& reservation, std::size_t bytes) {
  if (bytes <= reservation.mapped) return;
  const std::size_t before = reservation.mapped;
  const std::size_t all = round_up_to(bytes - before, granularity_);
  reservation.pieces.reserve(reservation.pieces.size() + (all - 1) / most_at_once_ + 1);
  while (reservation.mapped < before + all) {
    const std::size_t piece = std::min(before + all - reservation.mapped, most_at_once_);
    try {
      map_piece(static_cast<char*>(segment) + reservation.mapped, piece);
    } catch (...) {
      unmap_down_to(segment, reservation, before);
      throw;
    }
    reservation.pieces.push_back(piece);
    reservation.mapped += piece;
  }
}

void VirtualSegmentSource::map_piece(void* begin, std::size_t bytes) {
  const ProfilerRange range(profiler_listens(), bytes, "grow pool");
  PhysicalMemory physical = PhysicalMemory::kNull;
  const Code created = api_.create_memory(device_.id, bytes, &physical);
  if (created == Code::kMemoryAllocation) {
    throw OutOfMemory(
        str_format("{} bytes to map asked of {}, which has no room", bytes, to_string(device_)));
  }
  check(created, str_format("create {} bytes to map on {}", bytes, to_string(device_)));
  const Code mapped = api_.map_memory(device_.id, begin, bytes, physical);
  (void)api_.release_memory(physical);  // the memory lives as long as it is mapped
  check(mapped, str_format("map {} bytes on {}", bytes, to_string(device_)));
}

void VirtualSegmentSource::map(void* segment, std::size_t, std::size_t offset, std::size_t count,
                               StreamId) {
  const std::lock_guard lock(mutex_);
  Reservation& held = reservations_.at(segment);
  CGTREE_CHECK(offset % most_at_once_ == 0 && count % most_at_once_ == 0);
  CGTREE_CHECK(offset + count <= held.mapped && count <= held.holes);
  char* const begin = static_cast<char*>(segment) + offset;
  for (std::size_t done = 0; done < count; done += most_at_once_) {
    try {
      map_piece(begin + done, most_at_once_);
    } catch (...) {
      if (done > 0) (void)api_.unmap_memory(begin, done);
      throw;
    }
  }
  held.holes -= count;
}

bool VirtualSegmentSource::unmap(void* segment, std::size_t, std::size_t offset, std::size_t count,
                                 StreamId stream) noexcept {
  if (!is_done(stream)) return false;
  const std::lock_guard lock(mutex_);
  Reservation& held = reservations_.find(segment)->second;
  CGTREE_CHECK(offset % most_at_once_ == 0 && count % most_at_once_ == 0);
  if (!unmap_piece(static_cast<char*>(segment) + offset, count)) return false;
  held.holes += count;
  return true;
}

bool VirtualSegmentSource::unmap_piece(void* begin, std::size_t bytes) noexcept {
  const Code code = api_.unmap_memory(begin, bytes);
  if (ok(code)) return true;
  log_event(LogLevel::kError, "unmap_failed device={} error={}", to_string(device_), name(code));
  return false;
}

// Unmaps whole pieces from the end. Requires: no work uses them.
void VirtualSegmentSource::unmap_down_to(void* segment, Reservation& reservation,
                                         std::size_t least) noexcept {
  while (!reservation.pieces.empty()) {
    const std::size_t piece = reservation.pieces.back();
    if (reservation.mapped - piece < least) break;
    if (!unmap_piece(static_cast<char*>(segment) + reservation.mapped - piece, piece)) break;
    reservation.pieces.pop_back();
    reservation.mapped -= piece;
  }
}

// Waits for the work of the stream so far. Returns false if waiting is impossible. Called without
// the lock: a host function on the stream may free memory of this source.
bool VirtualSegmentSource::is_done(StreamId stream) noexcept {
  if (stream == kIdle) return true;
  const StreamRef named = find_stream(static_cast<StreamIdentity>(stream));
  GraphAPI* const api = named ? named.api().graphs() : nullptr;
  if (api == nullptr) return false;
  RelaxedCapture relaxed(api);
  const StreamHandle handle = named.handle();
  CaptureInfo capture;
  EventHandle event = EventHandle::kNull;
  std::optional<DeviceScope> scope;  // the event must belong to the device of the stream
  try {
    scope.emplace(device_api(device_), device_.id);
  } catch (const std::exception&) {
    return false;
  }
  bool done = ok(api->capture_info(handle, &capture)) && capture.status == CaptureStatus::kNone &&
              ok(api->create_event(&event));
  if (done) {
    done = ok(api->record_event(event, handle)) && ok(api->synchronize_event(event));
    (void)api->destroy_event(event);
  }
  if (!done) (void)api->take_last_error();
  return done;
}

// Aborts unless the segment is allocated. Requires: the lock is held.
VirtualSegmentSource::Reservation& VirtualSegmentSource::in_use(void* segment) noexcept {
  const auto found = reservations_.find(segment);
  CGTREE_CHECK(found != reservations_.end() && !found->second.freed);
  return found->second;
}

void VirtualSegmentSource::free(void* segment, std::size_t, StreamId stream) noexcept {
  {
    const std::lock_guard lock(mutex_);
    Reservation& held = in_use(segment);
    held.freed = true;
    held.stream = stream;
  }
  give_back_freed();
}

void VirtualSegmentSource::give_back_freed() noexcept {
  std::unique_lock lock(mutex_);
  for (auto position = reservations_.begin(); position != reservations_.end();) {
    const auto current = position;
    Reservation& held = current->second;
    bool is_done_with = false;
    if (held.freed && !held.is_busy) {
      held.is_busy = true;  // so that it stays
      lock.unlock();
      is_done_with = is_done(held.stream);
      lock.lock();
      held.is_busy = false;
    }
    ++position;
    if (is_done_with) give_back(current);
  }
}

void VirtualSegmentSource::give_back(Reservations::iterator reservation) noexcept {
  auto& [segment, held] = *reservation;
  unmap_down_to(segment, held, 0);
  if (held.mapped > 0) return;
  const Code code = api_.free_addresses(segment, held.reserved);
  if (!ok(code)) {
    log_event(LogLevel::kError, "addresses_lost device={} error={}", to_string(device_),
              name(code));
  }
  reservations_.erase(reservation);
}

bool VirtualSegmentSource::grow(void* segment, std::size_t, std::size_t grown, StreamId) {
  const std::lock_guard lock(mutex_);
  Reservation& held = in_use(segment);
  if (grown > held.reserved) return false;
  map_up_to(segment, held, grown);
  return true;
}

std::size_t VirtualSegmentSource::shrink(void* segment, std::size_t bytes, std::size_t least,
                                         StreamId stream) noexcept {
  std::unique_lock lock(mutex_);
  Reservation& held = in_use(segment);  // stays: no other call is made while a segment shrinks
  const std::size_t stays = std::max<std::size_t>(least, 1);
  if (held.pieces.empty() || held.mapped - held.pieces.back() < stays) {
    return std::min(bytes, held.mapped);
  }
  lock.unlock();
  const bool is_done_with = is_done(stream);
  lock.lock();
  if (is_done_with) unmap_down_to(segment, held, stays);
  return std::min(bytes, held.mapped);
}

}  // namespace cgtree
