// HandleTable: objects behind handles, which are numbers that are never used again, so that a use
// after the object's end is detected.
//
//   handle = kind (4 bits) | generation (36) | index (24)
//
// A handle names a slot by its index. The generation of a slot grows each time it is used again,
// and a slot whose generations are used up is not used again, so no two objects ever have the same
// handle. Slots neither move nor return to the heap: reading a slot is always allowed, for any
// number that a caller passes.
//
// Example: the first tensor is handle 3:1:0. When it is destroyed, slot 0 holds 0:1:0, so that
// 3:1:0 no longer compares equal; when its object has ended, the slot holds 0:2:0, and the next
// tensor in it is handle 3:2:0.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/frame.h"
#include "base/mutex.h"

namespace cgtree::capi {

// The kind of an object, in the uppermost bits of its handle. No kind is 0, so that the word of a
// slot without an object is not a handle.
enum class HandleKind : std::uint8_t {
  kContext = 1,
  kFunction = 2,
  kTensor = 3,
  kGenerator = 4,
  kProgressWatch = 5,
  kLoopStream = 6,
};

// Thrown for a handle without an object, or of another kind.
class HandleError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};
// Throws HandleError. `what` names the argument: "input 3"; "": "the tensor", and so on.
[[noreturn]] void throw_bad_handle(std::uint64_t handle, HandleKind expected,
                                   std::string_view what);

// Returns the number in an opaque pointer of the C header.
template <typename Opaque>
std::uint64_t number_of(Opaque* handle) noexcept {
  static_assert(sizeof(handle) == sizeof(std::uint64_t), "handles are numbers of 64 bits");
  return reinterpret_cast<std::uint64_t>(handle);
}

// The next two divide a handle: the index of a slot, and the count of the slot's uses. The kind has
// the other 4 bits.
inline constexpr int kIndexBits = 24;
inline constexpr int kGenerationBits = 36;

// The owners of an object: its handle alone, so that no thread may destroy the handle while another
// uses the object, or its handle and all pins.
enum class Keeping { kHandle, kPins };

// A HandleTable is the one table of objects T, whose handles are opaque pointers. It has no
// constructor and no destructor, so handles may be used until the process ends. Thread safety: all
// functions may be called on any thread.
template <typename T, typename Handle, HandleKind Kind, Keeping Kept>
class HandleTable {
 public:
  class Pin;

  // Makes T{parts...} and returns its handle. Throws OutOfMemory and bad_alloc.
  template <typename... Parts>
  static Handle make(Parts&&... parts) {
    Slot* slot = take_spare();
    if (slot == nullptr) [[unlikely]]
      slot = &take_shared();
    new (&slot->object) T{std::forward<Parts>(parts)...};
    if constexpr (Kept == Keeping::kPins) slot->references.store(1, std::memory_order_relaxed);
    const std::uint64_t number = slot->word.load(std::memory_order_relaxed) | kKindBits;
    slot->word.store(number, std::memory_order_release);
    return reinterpret_cast<Handle>(number);
  }

  // Returns null if the handle names no object.
  static T* find(Handle handle) noexcept {
    const std::uint64_t number = number_of(handle);
    Slot* const slot = slot_of(number);
    const bool is_live = slot != nullptr && slot->word.load(std::memory_order_acquire) == number;
    return is_live ? &slot->object : nullptr;
  }
  // Writes project(object) for each handle into `out`, up to the first handle without an object.
  // Returns how many it wrote. Handles in the same chunk share one look-up of the chunk.
  template <typename U, typename Project>
  static std::size_t find_all(std::span<const Handle> handles, U** out, Project project) noexcept {
    constexpr std::uint64_t kSameChunk = kKindMask | (kIndexMask & ~std::uint64_t{kChunk - 1});
    std::uint64_t last = 0;
    Slot* slots = nullptr;
    for (std::size_t i = 0; i < handles.size(); ++i) {
      const std::uint64_t handle = number_of(handles[i]);
      if (((handle ^ last) & kSameChunk) != 0) [[unlikely]] {
        last = handle;
        slots = chunk_of(handle);
      }
      if (slots == nullptr) [[unlikely]]
        return i;
      Slot& slot = slots[handle % kChunk];
      if (slot.word.load(std::memory_order_acquire) != handle) return i;
      out[i] = project(slot.object);
    }
    return handles.size();
  }
  // As find(), but throws HandleError; `what` is as for throw_bad_handle().
  static T& get(Handle handle, std::string_view what = {}) {
    if (T* const object = find(handle)) [[likely]]
      return *object;
    throw_bad_handle(number_of(handle), Kind, what);
  }
  // As get(), and keeps the object until the pin ends.
  static Pin pin(Handle handle, std::string_view what = {}) requires(Kept == Keeping::kPins) {
    const std::uint64_t number = number_of(handle);
    Slot* const slot = slot_of(number);
    if (slot == nullptr || !retain(*slot, number)) throw_bad_handle(number, Kind, what);
    return Pin(*slot);
  }

  // Ends the handle, and the object when no pin keeps it; does nothing for null. Throws
  // HandleError.
  static void destroy(Handle handle) {
    if (handle != nullptr) release(end(handle));
  }
  // The next two are the halves of destroy(): end() ends the handle and returns the index of its
  // slot, whose object stays until release().
  static std::uint32_t end(Handle handle) {
    const std::uint64_t number = number_of(handle);
    Slot* const slot = slot_of(number);
    std::uint64_t expected = number;
    if (slot == nullptr || !slot->word.compare_exchange_strong(expected, number & ~kKindMask,
                                                               std::memory_order_acq_rel)) {
      throw_bad_handle(number, Kind, {});
    }
    return static_cast<std::uint32_t>(number & kIndexMask);
  }
  static void release(std::uint32_t index) noexcept { release(slot_at(index)); }

  // Counts the handles that exist.
  static std::size_t live() noexcept {
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < used_.load(std::memory_order_acquire); ++i)
      count += slot_at(i).word.load(std::memory_order_relaxed) >= kKindBits;
    return count;
  }

 private:
  static constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << kIndexBits) - 1;
  static constexpr std::uint64_t kKindMask = ~std::uint64_t{0} << (kIndexBits + kGenerationBits);
  static constexpr std::uint64_t kKindBits = std::uint64_t{static_cast<std::uint8_t>(Kind)}
                                             << (kIndexBits + kGenerationBits);
  static constexpr std::uint64_t kNextGeneration = std::uint64_t{1} << kIndexBits;
  static constexpr std::uint32_t kChunk = 1024;  // slots that are allocated together
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::uint32_t kMaxSpares = 512;

  // A Slot of a tensor is one cache line.
  struct alignas(64) Slot {
    Slot() {}
    ~Slot() {}

    std::atomic<std::uint64_t> word{0};  // the handle, or without its kind while there is none
    std::atomic<std::uint32_t> references{0};  // with kPins: the handle and the pins
    std::uint32_t next_free = kNone;           // in the list of spares or the shared list
    union {
      T object;
    };
  };
  // The slots that a thread released last. The thread reuses them without a lock: the outputs of a
  // call usually end on the thread that makes the next call.
  struct Spares {
    std::uint32_t first = kNone;
    std::uint32_t room = 0;
    bool is_open = false;
  };
  struct SparesEnd {
    ~SparesEnd() {
      while (Slot* const slot = take_spare())
        share(*slot);
      of_thread<Spares>().room = 0;
    }
  };

  // Both return null for a handle of another kind or with an index that was never used.
  static Slot* chunk_of(std::uint64_t handle) noexcept {
    if ((handle & kKindMask) != kKindBits) return nullptr;
    return chunks_[(handle & kIndexMask) / kChunk].load(std::memory_order_acquire);
  }
  static Slot* slot_of(std::uint64_t handle) noexcept {
    Slot* const chunk = chunk_of(handle);
    return chunk == nullptr ? nullptr : &chunk[handle % kChunk];
  }
  // Requires: the index was used before.
  static Slot& slot_at(std::uint32_t index) noexcept {
    return chunks_[index / kChunk].load(std::memory_order_acquire)[index % kChunk];
  }
  static std::uint32_t index_of(const Slot& slot) noexcept {
    return static_cast<std::uint32_t>(slot.word.load(std::memory_order_relaxed) & kIndexMask);
  }

  static bool retain(Slot& slot, std::uint64_t handle) noexcept {
    std::uint32_t count = slot.references.load(std::memory_order_relaxed);
    do {
      if (count == 0) return false;
    } while (!slot.references.compare_exchange_weak(count, count + 1, std::memory_order_acq_rel));
    if (slot.word.load(std::memory_order_acquire) == handle) return true;
    release(slot);
    return false;
  }
  static void release(Slot& slot) noexcept {
    if constexpr (Kept == Keeping::kPins) {
      if (slot.references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    }
    std::destroy_at(&slot.object);
    const std::uint64_t next = slot.word.load(std::memory_order_relaxed) + kNextGeneration;
    if ((next & kKindMask) != 0) return;  // its generations are used up
    slot.word.store(next, std::memory_order_relaxed);
    Spares& spares = of_thread<Spares>();
    if (spares.room == 0 && !open(spares)) return share(slot);
    slot.next_free = std::exchange(spares.first, index_of(slot));
    --spares.room;
  }

  static bool open(Spares& spares) noexcept {
    if (std::exchange(spares.is_open, true)) return false;
    (void)of_thread<SparesEnd>();  // gives them to other threads when this thread ends
    spares.room = kMaxSpares;
    return true;
  }
  static Slot* take_spare() noexcept {
    Spares& spares = of_thread<Spares>();
    if (spares.first == kNone) return nullptr;
    Slot& slot = slot_at(spares.first);
    spares.first = slot.next_free;
    ++spares.room;
    return &slot;
  }
  static void share(Slot& slot) noexcept {
    const std::lock_guard lock(mutex_);
    slot.next_free = std::exchange(shared_, index_of(slot));
  }
  static Slot& take_shared() {
    const std::lock_guard lock(mutex_);
    if (shared_ != kNone) {
      Slot& slot = slot_at(shared_);
      shared_ = slot.next_free;
      return slot;
    }
    const std::uint32_t index = used_.load(std::memory_order_relaxed);
    if (index > kIndexMask) {
      throw OutOfMemory(
          str_format("there are {} handles of this kind already: destroy those that "
                     "are not needed",
                     kIndexMask + 1));
    }
    if (index % kChunk == 0)
      chunks_[index / kChunk].store(new Slot[kChunk], std::memory_order_release);
    Slot& slot = slot_at(index);
    slot.word.store(kNextGeneration | index, std::memory_order_relaxed);
    used_.store(index + 1, std::memory_order_release);
    return slot;
  }

  static inline constinit std::atomic<Slot*> chunks_[(kIndexMask + 1) / kChunk] = {};
  static inline constinit std::atomic<std::uint32_t> used_{0};  // slots that were ever used
  static inline constinit SpinMutex<LockRank::kLeaf> mutex_;    // guards the growth and shared_
  static inline constinit std::uint32_t shared_ = kNone;
};

// A Pin keeps an object alive while another thread may destroy its handle.
template <typename T, typename Handle, HandleKind Kind, Keeping Kept>
class HandleTable<T, Handle, Kind, Kept>::Pin {
 public:
  // Takes over a reference of retain().
  explicit Pin(Slot& slot) noexcept : slot_(&slot) {}
  Pin(Pin&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  Pin& operator=(Pin&&) = delete;
  ~Pin() {
    if (slot_ != nullptr) release(*slot_);
  }
  // The next two return the object. Requires: the pin was not moved from.
  T& operator*() const noexcept { return slot_->object; }
  T* operator->() const noexcept { return &slot_->object; }

 private:
  Slot* slot_;
};

}  // namespace cgtree::capi
