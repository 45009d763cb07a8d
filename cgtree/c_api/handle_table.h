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
#include <span>
#include <utility>

#include "base/error.h"

namespace cgtree::capi {

enum class HandleKind : std::uint8_t {
  kContext = 1,
  kFunction = 2,
  kTensor = 3,
  kGenerator = 4,
  kRecordedState = 5,
};

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

  // Of an object made from `parts`, which takes no heap memory. Throws OutOfMemory, bad_alloc.
  template <typename... Parts>
  std::uint64_t make(Parts&&... parts) {
    Place& place = take_place();
    new (&place.object) T{std::forward<Parts>(parts)...};
    if constexpr (Kept == Keeping::kPins) place.references.store(1, std::memory_order_relaxed);
    const std::uint64_t handle = place.word.load(std::memory_order_relaxed) | kKindBits;
    place.word.store(handle, std::memory_order_release);
    return handle;
  }

  // Null for a handle that is none.
  T* find_live(std::uint64_t handle) const noexcept {
    Place* const place = find(handle);
    const bool is_live = place != nullptr && place->word.load(std::memory_order_acquire) == handle;
    return is_live ? &place->object : nullptr;
  }

  // Writes the addresses of the objects behind handles, and answers how many it wrote: it ends at
  // the first that is none. `project` makes a U* from a T&.
  template <typename Handle, typename U, typename Project>
  std::size_t find_live(std::span<Handle* const> handles, U** out, Project project) const noexcept {
    // Of a handle in the same chunk these bits are the same, and nothing of them is looked at
    // again.
    constexpr std::uint64_t kSame = kKindMask | (kIndexMask & ~std::uint64_t{kChunk - 1});
    std::uint64_t last = 0;
    Place* places = nullptr;  // of its chunk
    std::size_t i = 0;
    for (; i < handles.size(); ++i) {
      const auto handle = reinterpret_cast<std::uint64_t>(handles[i]);
      if (((handle ^ last) & kSame) != 0) [[unlikely]] {
        last = handle;
        places = (handle & kKindMask) == kKindBits ? chunk_of(handle) : nullptr;
      }
      if (places == nullptr) [[unlikely]]
        break;
      Place& place = places[handle % kChunk];
      if (place.word.load(std::memory_order_acquire) != handle) break;
      out[i] = project(place.object);
    }
    return i;
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

  // Ends the handle; its object ends with the last pin. Throws HandleError.
  void destroy(std::uint64_t handle, std::string_view what) { release(ended(handle, what)); }

  // The two halves of destroy().
  std::uint32_t end(std::uint64_t handle, std::string_view what) {
    return ended(handle, what).index();
  }
  void release(std::uint32_t index) noexcept { release(known_place(index)); }

  std::size_t live() const noexcept {
    std::size_t count = 0;
    const std::uint32_t used = used_.load(std::memory_order_acquire);
    for (std::uint32_t index = 0; index < used && index <= kIndexMask; ++index) {
      const Place* const place = place_at(index);
      count += place != nullptr && place->word.load(std::memory_order_relaxed) >= kKindBits;
    }
    return count;
  }

 private:
  static constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << kIndexBits) - 1;
  static constexpr std::uint64_t kKindMask = ~std::uint64_t{0} << (kIndexBits + kGenerationBits);
  static constexpr std::uint64_t kKindBits = static_cast<std::uint64_t>(Kind)
                                             << (kIndexBits + kGenerationBits);
  static constexpr std::uint64_t kNextGeneration = std::uint64_t{1} << kIndexBits;
  static constexpr std::uint32_t kChunk = 1024;  // places
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::uint32_t kMostSpares = 64;

  // One cache line, for tensors.
  struct alignas(64) Place {
    Place() {}
    ~Place() {}

    std::uint32_t index() const noexcept {
      return static_cast<std::uint32_t>(word.load(std::memory_order_relaxed) & kIndexMask);
    }

    // The handle; without its kind while nobody may use it.
    std::atomic<std::uint64_t> word{0};
    std::atomic<std::uint32_t> references{0};  // of kPins: the handle and the pins
    std::atomic<std::uint32_t> next_free{kNone};
    union {
      T object;
    };
  };

  Place* chunk_of(std::uint64_t handle) const noexcept {
    return chunks_[(handle & kIndexMask) / kChunk].load(std::memory_order_acquire);
  }
  // Of one that was taken before.
  Place& known_place(std::uint32_t index) const noexcept { return chunk_of(index)[index % kChunk]; }
  Place* place_at(std::uint32_t index) const noexcept {
    Place* const chunk = chunk_of(index);
    return chunk == nullptr ? nullptr : &chunk[index % kChunk];
  }
  Place* find(std::uint64_t handle) const noexcept {
    const bool is_kind = (handle & kKindMask) == kKindBits;
    return is_kind ? place_at(static_cast<std::uint32_t>(handle & kIndexMask)) : nullptr;
  }

  Place& ended(std::uint64_t handle, std::string_view what) {
    Place* const place = find(handle);
    std::uint64_t expected = handle;
    if (place == nullptr || !place->word.compare_exchange_strong(expected, handle & ~kKindMask,
                                                                 std::memory_order_acq_rel)) {
      throw_bad_handle(handle, Kind, what);
    }
    return *place;
  }

  bool retain(Place& place, std::uint64_t handle) noexcept {
    std::uint32_t count = place.references.load(std::memory_order_relaxed);
    do {
      if (count == 0) return false;
    } while (!place.references.compare_exchange_weak(count, count + 1, std::memory_order_acq_rel));
    if (place.word.load(std::memory_order_acquire) == handle) return true;
    release(place);
    return false;
  }
  void release(Place& place) noexcept {
    if constexpr (Kept == Keeping::kPins) {
      if (place.references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    }
    std::destroy_at(&place.object);
    const std::uint64_t next = place.word.load(std::memory_order_relaxed) + kNextGeneration;
    if ((next & kKindMask) != 0) return;
    place.word.store(next, std::memory_order_relaxed);
    put_back(place);
  }

  // Places that a thread gave back last are its own: those of a call's outputs come back at once,
  // and need not be shared. A thread has them of the first table of a type that it uses.
  struct Spares {
    HandleTable* table = nullptr;  // null: of none yet
    std::uint32_t first = kNone;
    std::uint32_t count = 0;
  };
  struct SparesEnd {
    ~SparesEnd() {
      while (spares_.first != kNone)
        spares_.table->share(*spares_.table->take_spare());
      spares_.count = kMostSpares;  // for what still comes on this thread
    }
  };

  bool keep_spare(Place& place) noexcept {
    if (spares_.table != this) [[unlikely]] {
      if (spares_.table != nullptr) return false;
      static thread_local SparesEnd end;
      spares_.table = this;
    }
    if (spares_.count == kMostSpares) return false;
    place.next_free.store(spares_.first, std::memory_order_relaxed);
    spares_.first = place.index();
    ++spares_.count;
    return true;
  }
  // Null if there is none.
  Place* take_spare() noexcept {
    if (spares_.table != this || spares_.first == kNone) return nullptr;
    Place& place = known_place(spares_.first);
    spares_.first = place.next_free.load(std::memory_order_relaxed);
    --spares_.count;
    return &place;
  }

  void put_back(Place& place) noexcept {
    if (!keep_spare(place)) share(place);
  }
  Place& take_place() {
    if (Place* const spare = take_spare()) return *spare;
    return take_shared();
  }

  // A stack of places; the upper half of its head changes with each push, so that a pop that was
  // overtaken fails.
  void share(Place& place) noexcept {
    std::uint64_t head = free_.load(std::memory_order_relaxed);
    std::uint64_t next;
    do {
      place.next_free.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
      next = ((head >> 32) + 1) << 32 | place.index();
    } while (!free_.compare_exchange_weak(head, next, std::memory_order_acq_rel));
  }
  Place& take_shared() {
    std::uint64_t head = free_.load(std::memory_order_acquire);
    while (static_cast<std::uint32_t>(head) != kNone) {
      Place& place = known_place(static_cast<std::uint32_t>(head));
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
    Place& place = known_place(index);
    place.word.store(kNextGeneration | index, std::memory_order_relaxed);
    return place;
  }

  static inline thread_local constinit Spares spares_;

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
