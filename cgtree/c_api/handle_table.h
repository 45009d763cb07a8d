// HandleTable: objects behind numbers that tell when they are used after their end.
//
//   handle = kind (4 bits) | generation (36) | index (24)
//
// A place's generation grows each time it is used again, and a place whose generations are used up
// is left alone; so no handle ever names two objects. Places never move and never go back to the
// heap: to look at one by a wrong handle is always allowed.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "base/error.h"

namespace cgtree::capi {

enum class HandleKind : std::uint8_t { kContext = 1, kFunction = 2, kTensor = 3 };

// "a context", ...; "nothing" for a number that is none.
std::string_view name_of_kind(std::uint64_t handle) noexcept;

// A handle that names nothing, or not what it should.
class HandleError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

[[noreturn]] void throw_bad_handle(std::uint64_t handle, HandleKind expected,
                                   std::string_view what);

inline constexpr int kIndexBits = 24;
inline constexpr int kGenerationBits = 36;

// What keeps an object alive.
enum class Keeping {
  kHandle,  // its handle alone: peek(), and nobody may destroy it meanwhile
  kPins,    // its handle and whoever has a Pin
};

// Threads: any.
template <typename T, HandleKind Kind, Keeping Kept>
class HandleTable {
 public:
  class Pin;

  constexpr HandleTable() = default;

  // Throws OutOfMemory, bad_alloc; then `object` is destroyed.
  std::uint64_t make(T object) {
    Place& place = take_place();
    std::construct_at(&place.object, std::move(object));
    if constexpr (Kept == Keeping::kPins) place.references.store(1, std::memory_order_relaxed);
    const std::uint64_t handle = compose(place);
    place.handle.store(handle, std::memory_order_release);
    return handle;
  }

  // Null for a handle that is none.
  T* find_live(std::uint64_t handle) const noexcept {
    Place* const place = find(handle);
    const bool is_live =
        place != nullptr && place->handle.load(std::memory_order_acquire) == handle;
    return is_live ? &place->object : nullptr;
  }

  // Throws HandleError; `what` names it in the message.
  T& peek(std::uint64_t handle, std::string_view what) const {
    if (T* const object = find_live(handle)) [[likely]]
      return *object;
    throw_bad_handle(handle, Kind, what);
  }

  // As peek(); the object lives as long as the pin.
  Pin pin(std::uint64_t handle, std::string_view what) requires(Kept == Keeping::kPins) {
    Place* const place = find(handle);
    if (place == nullptr || !retain(*place, handle)) throw_bad_handle(handle, Kind, what);
    return Pin(*this, *place);
  }

  // Ends the handle; its object ends with the last pin. False if another thread came first. Throws
  // HandleError.
  void destroy(std::uint64_t handle, std::string_view what) { release(end(handle, what)); }

  // The two halves of destroy().
  std::uint32_t end(std::uint64_t handle, std::string_view what) {
    Place* const place = find(handle);
    std::uint64_t expected = handle;
    if (place == nullptr ||
        !place->handle.compare_exchange_strong(expected, 0, std::memory_order_acq_rel)) {
      throw_bad_handle(handle, Kind, what);
    }
    return static_cast<std::uint32_t>(handle & kIndexMask);
  }
  void release(std::uint32_t index) noexcept { release(*place_at(index)); }

  std::size_t live() const noexcept {
    std::size_t count = 0;
    const std::uint32_t used = used_.load(std::memory_order_acquire);
    for (std::uint32_t index = 0; index < used && index <= kIndexMask; ++index) {
      const Place* const place = place_at(index);
      count += place != nullptr && place->handle.load(std::memory_order_relaxed) != 0;
    }
    return count;
  }

 private:
  static constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << kIndexBits) - 1;
  static constexpr std::uint64_t kLastGeneration = (std::uint64_t{1} << kGenerationBits) - 1;
  static constexpr std::uint32_t kChunk = 1024;  // places
  static constexpr std::uint32_t kNone = UINT32_MAX;

  // What a call looks at comes first, in one cache line.
  struct alignas(64) Place {
    Place() {}
    ~Place() {}

    std::atomic<std::uint64_t> handle{0};  // 0: nobody may use it
    union {
      T object;
    };
    std::atomic<std::uint32_t> references{0};  // of kPins: the handle and the pins
    std::uint32_t index = 0;
    std::uint64_t generation = 1;
    std::atomic<std::uint32_t> next_free{kNone};
  };

  static std::uint64_t compose(const Place& place) noexcept {
    return static_cast<std::uint64_t>(Kind) << (kIndexBits + kGenerationBits) |
           place.generation << kIndexBits | place.index;
  }

  Place* place_at(std::uint32_t index) const noexcept {
    Place* const chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &chunk[index % kChunk];
  }
  Place* find(std::uint64_t handle) const noexcept {
    return handle == 0 ? nullptr : place_at(static_cast<std::uint32_t>(handle & kIndexMask));
  }

  bool retain(Place& place, std::uint64_t handle) noexcept {
    std::uint32_t count = place.references.load(std::memory_order_relaxed);
    do {
      if (count == 0) return false;
    } while (!place.references.compare_exchange_weak(count, count + 1, std::memory_order_acq_rel));
    if (place.handle.load(std::memory_order_acquire) == handle) return true;
    release(place);
    return false;
  }
  void release(Place& place) noexcept {
    if constexpr (Kept == Keeping::kPins) {
      if (place.references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    }
    std::destroy_at(&place.object);
    if (++place.generation <= kLastGeneration) put_back(place);
  }

  // A stack of places; the upper half of its head changes with each push, so that a pop that was
  // overtaken fails.
  void put_back(Place& place) noexcept {
    std::uint64_t head = free_.load(std::memory_order_relaxed);
    std::uint64_t next;
    do {
      place.next_free.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
      next = ((head >> 32) + 1) << 32 | place.index;
    } while (!free_.compare_exchange_weak(head, next, std::memory_order_acq_rel));
  }
  Place& take_place() {
    std::uint64_t head = free_.load(std::memory_order_acquire);
    while (static_cast<std::uint32_t>(head) != kNone) {
      Place& place = *place_at(static_cast<std::uint32_t>(head));
      const std::uint64_t next =
          (head >> 32) << 32 | place.next_free.load(std::memory_order_relaxed);
      if (free_.compare_exchange_weak(head, next, std::memory_order_acq_rel)) return place;
    }
    return fresh_place();
  }
  Place& fresh_place() {
    const std::uint32_t index = used_.load(std::memory_order_relaxed) > kIndexMask
                                    ? static_cast<std::uint32_t>(kIndexMask) + 1
                                    : used_.fetch_add(1, std::memory_order_acq_rel);
    if (index > kIndexMask) {
      throw OutOfMemory(
          fmt::format("there are {} handles of this kind already: destroy those that "
                      "are not needed",
                      kIndexMask + 1));
    }
    std::atomic<Place*>& chunk = chunks_[index / kChunk];
    if (chunk.load(std::memory_order_acquire) == nullptr) {
      auto made = std::make_unique<Place[]>(kChunk);
      Place* none = nullptr;
      if (chunk.compare_exchange_strong(none, made.get(), std::memory_order_acq_rel)) {
        (void)made.release();  // for the rest of the process
      }
    }
    Place& place = *place_at(index);
    place.index = index;
    return place;
  }

  std::atomic<Place*> chunks_[(kIndexMask + 1) / kChunk] = {};
  std::atomic<std::uint32_t> used_{0};
  std::atomic<std::uint64_t> free_{kNone};
};

// Keeps an object while its handle may be destroyed; move-only.
template <typename T, HandleKind Kind, Keeping Kept>
class HandleTable<T, Kind, Kept>::Pin {
 public:
  Pin(HandleTable& table, Place& place) noexcept : table_(&table), place_(&place) {}
  Pin(Pin&& other) noexcept : table_(other.table_), place_(std::exchange(other.place_, nullptr)) {}
  Pin& operator=(Pin&&) = delete;
  ~Pin() {
    if (place_ != nullptr) table_->release(*place_);
  }

  T& operator*() const noexcept { return place_->object; }
  T* operator->() const noexcept { return &place_->object; }

 private:
  HandleTable* table_;
  Place* place_;
};

}  // namespace cgtree::capi
