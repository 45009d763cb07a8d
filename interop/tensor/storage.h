// Storage: a piece of device memory with one intrusive count. The last release tells its owner.
//
// A storage is live from its first reference until the last is released, or until its owner
// invalidates it while handles are held. These two may race. References and state are one word, so
// that exactly one side acts on the end of a life:
//   references 1 -> 0   by the last release: the owner may reuse the memory and the Storage
//   live -> stale       by the owner (mark_step), if there are references: data() throws from then
//                       on, the memory is the owner's
//
// A release that finds one reference holds the last: only the owner could make another meanwhile
// (if_live). The owner therefore first does all work that must precede the end, and then ends the
// life by drop_last(), the only atomic read-modify-write. After that the thread must not use the
// storage again, because the owner may revive it at once.
//
// Thread safety: references may be copied and released on any thread. The functions for the owner
// belong to the thread that uses its context.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "interop/device/device.h"
#include "interop/device/stream.h"
#include "interop/tensor/shape.h"

namespace cgtree {

class Storage;
class StorageRef;

// A StorageOwner decides about a storage's memory when its last reference is released.
class StorageOwner {
 public:
  // Called when the last reference is released. The owner also disposes of the Storage object.
  // Thread safety: any thread.
  virtual void release(Storage& storage) noexcept = 0;
  // Called by the thread that holds the last reference and releases it. Must call drop_last(), and
  // do the work of release(). Thread safety: any thread.
  virtual void release_last(Storage& storage) noexcept;
  // Called when data() is called on a stale storage. Throws StaleTensor that names the output. An
  // owner that calls invalidate() overrides it.
  [[noreturn]] virtual void throw_stale(const Storage& storage) const;
  // Called before work that uses the memory is enqueued on `stream`. Throws InvalidArgument if
  // used() could not determine the end of that work.
  virtual void expect_use(const Storage& /*storage*/, StreamRef /*stream*/) const {}
  // Called after work that uses the memory was enqueued on `stream`.
  virtual void used(Storage& /*storage*/, StreamRef /*stream*/) {}
  // Returns the stream that orders the contents of a storage which was made without a stream.
  virtual StreamRef stream(const Storage& /*storage*/) const noexcept { return {}; }
  // Returns the stream on which another library works on the memory, or null; always the same for
  // one storage. Called for borrowed storages only.
  virtual StreamRef producer(const Storage& /*storage*/) const noexcept { return {}; }

 protected:
  ~StorageOwner() = default;
};

// A StorageTag is data of the owner about a storage. Only the owner reads it.
struct StorageTag {
  std::uint8_t kind = 0;       // selects the way in which the owner releases it
  void* place = nullptr;       // the owner's record of this storage
  std::uint32_t position = 0;  // its index among several
  std::uint32_t function = 0;  // the step function that made it
  std::uint64_t number = 0;    // a number of the owner's
};

// A StorageDomain represents a context, which knows the stream on which its memory is used. Only
// its address matters.
struct StorageDomain {};

class Storage {
 public:
  // A kBorrowed storage is always live, but each use must consult its owner.
  enum class State : std::uint8_t { kLive, kStale, kBorrowed };
  // The result of drop_last(): the life continues because the owner has made a reference meanwhile;
  // it ended now; it had ended by invalidate(); it ended now, after orphan().
  enum class End : std::uint8_t { kNotYet, kLive, kStale, kOrphan };

  // Makes a live storage without a reference. `stream` orders the contents; it may be null.
  // `domain`: the context that orders the use of the memory; null for other memory. Throws
  // DeviceError if the stream does not exist.
  Storage(StorageOwner& owner, Device device, StreamRef stream, void* data, std::size_t bytes,
          const StorageDomain* domain = nullptr);
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // Throws StaleTensor if the memory was invalidated.
  void* data() const {
    if (state() == State::kStale) [[unlikely]] {
      owner_->throw_stale(*this);
    }
    return data_;
  }
  // Returns the address, stale or not. It must not be dereferenced.
  std::uintptr_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(data_); }
  std::size_t bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }
  // Returns the stream that orders the contents; may be null. If it has ended, waits for its device
  // and returns the legacy stream. Throws DeviceError.
  StreamRef stream() const { return stream_ ? live_stream() : owner_->stream(*this); }
  StorageOwner& owner() const noexcept { return *owner_; }
  State state() const noexcept { return static_cast<State>(word() >> kStateShift); }
  const StorageDomain* domain() const noexcept { return domain_; }
  std::uint32_t references() const noexcept { return static_cast<std::uint32_t>(word()); }
  // Returns whether another library has the address: it learns neither of the end of the life nor
  // of a move of the contents.
  bool has_lease() const noexcept { return leases_.load(std::memory_order_acquire) > 0; }
  void add_lease() noexcept { leases_.fetch_add(1, std::memory_order_relaxed); }
  void remove_lease() noexcept { leases_.fetch_sub(1, std::memory_order_release); }
  // Returns 0 for live memory of `device` and `domain`, else the combined differences as one word.
  // kTakesBorrowed: borrowed memory is accepted, too.
  template <bool kTakesBorrowed>
  std::uint64_t difference(Device device, const StorageDomain* domain) const noexcept {
    constexpr std::uint64_t kTaken = kTakesBorrowed ? of(State::kBorrowed) : 0;
    return (std::bit_cast<std::uint64_t>(device_) ^ std::bit_cast<std::uint64_t>(device)) |
           (reinterpret_cast<std::uintptr_t>(domain_) ^ reinterpret_cast<std::uintptr_t>(domain)) |
           (word() & ~kTaken) >> kStateShift;
  }

  // Returns a count that rises whenever a storage without a domain ends, moves, or loses its
  // producer: while it stays, facts about such storages remain true. Only equality is meaningful.
  // Thread safety: any thread; an end on another thread is seen once the threads have synchronized.
  static std::uint64_t changes() noexcept;

  bool is_read_only() const noexcept { return is_read_only_; }
  // Returns whether the owner may call invalidate() while handles are held.
  bool may_be_invalidated() const noexcept { return may_be_invalidated_; }
  StreamRef producer() const noexcept {
    return state() == State::kBorrowed ? owner_->producer(*this) : StreamRef();
  }

  // The functions below are for the owner.

  // Makes changes() rise. Not inlined: a program and a shared library must use one count.
  static void note_change() noexcept;
  // The next two require that there is no reference yet. Makes the storage borrowed.
  void lend(bool is_read_only) noexcept {
    is_read_only_ = is_read_only;
    word_.store(of(State::kBorrowed), std::memory_order_release);
  }
  // Promises that invalidate() is never called.
  void keep_valid() noexcept { may_be_invalidated_ = false; }
  // Ends the life while handles are held. Returns false if the last release came first, or if the
  // life had ended.
  bool invalidate() noexcept {
    const bool is_counted = domain_ == nullptr;  // read before: the last handle may delete this
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    while (static_cast<std::uint32_t>(word) > 0 && word >> kStateShift == 0) {
      if (word_.compare_exchange_weak(word, word | of(State::kStale), std::memory_order_acq_rel)) {
        if (is_counted) note_change();
        return true;
      }
    }
    return false;
  }
  // Returns the last reference. Another may have been made meanwhile: see End.
  End drop_last() noexcept {
    const bool is_counted = domain_ == nullptr;  // read before: the owner may delete the storage
    const std::uint64_t word = word_.fetch_sub(1, std::memory_order_acq_rel);
    if (static_cast<std::uint32_t>(word) != 1) return End::kNotYet;
    if (is_counted) note_change();
    if (word >> kStateShift == 0) return End::kLive;
    if ((word & kOrphan) != 0) return End::kOrphan;
    return static_cast<State>(word >> kStateShift) == State::kStale ? End::kStale : End::kLive;
  }
  // Makes drop_last() return kOrphan instead of kLive from now on. Returns false if the last
  // release came first.
  bool orphan() noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    while (static_cast<std::uint32_t>(word) > 0) {
      if (word_.compare_exchange_weak(word, word | kOrphan, std::memory_order_acq_rel)) return true;
    }
    return false;
  }
  // Returns the shape of the last tensor of the former life, if that tensor was the last reference.
  // The next tensor moves it, which needs no atomic operation.
  Shape& former_shape() noexcept { return former_shape_; }
  // Moves the contents to another address, for every handle. Requires: the bytes were copied.
  void move_to(void* data) noexcept {
    data_ = data;
    if (domain_ == nullptr) note_change();
  }

 private:
  friend class StorageRef;
  static constexpr int kStateShift = 32;
  static constexpr std::uint64_t kOrphan = std::uint64_t{1} << 63;  // besides the state
  static_assert(static_cast<int>(State::kLive) == 0);

  static constexpr std::uint64_t of(State state) noexcept {
    return static_cast<std::uint64_t>(state) << kStateShift;
  }
  std::uint64_t word() const noexcept { return word_.load(std::memory_order_acquire); }

  void retain() noexcept { word_.fetch_add(1, std::memory_order_relaxed); }
  // The same for the first reference of a life, which no other thread can affect.
  void retain_first() noexcept { word_.store(of(State::kLive) + 1, std::memory_order_relaxed); }
  // Returns false if there is no reference.
  bool retain_if_held() noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);
    while (static_cast<std::uint32_t>(word) > 0) {
      if (word_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel)) return true;
    }
    return false;
  }
  // Returns false if this is the last reference; nothing has changed then.
  bool release_unless_last() noexcept {
    std::uint64_t word = this->word();
    while (static_cast<std::uint32_t>(word) != 1) {
      if (word_.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        return true;
      }
    }
    return false;
  }
  void release() noexcept {
    if (!release_unless_last()) owner_->release_last(*this);
  }
  // The same for the reference of a tensor of this shape.
  void release(Shape& shape) noexcept {
    if (release_unless_last()) return;
    former_shape_ = std::move(shape);  // swaps
    owner_->release_last(*this);
  }
  StreamRef live_stream() const;

  // The members that replays use for each input and output come first, in one cache line.
  StorageOwner* const owner_;
  void* data_;
  const Device device_;
  const StorageDomain* const domain_;
  std::atomic<std::uint64_t> word_{of(State::kLive)};  // references, and the state in the upper
                                                       // bits
  Shape former_shape_;                                 // used by the holder of the last reference

 public:
  StorageTag tag;

 private:
  std::size_t bytes_;
  std::atomic<std::uint32_t> leases_{0};
  bool is_read_only_ = false;
  bool may_be_invalidated_ = true;
  StreamRef stream_;
  StreamIdentity stream_identity_;  // kNone for streams that never end
};

// A StorageRef is a counted reference to a storage.
class StorageRef {
 public:
  StorageRef() = default;
  explicit StorageRef(Storage& storage) noexcept : storage_(&storage) { storage_->retain(); }
  // For the owner: begins a life. Requires: there is no reference.
  static StorageRef first(Storage& storage) noexcept {
    storage.retain_first();
    StorageRef ref;
    ref.storage_ = &storage;
    return ref;
  }
  // For the owner: returns null if the last reference is released, by any thread.
  static StorageRef if_live(Storage& storage) noexcept {
    StorageRef ref;
    if (storage.retain_if_held()) ref.storage_ = &storage;
    return ref;
  }
  StorageRef(const StorageRef& other) noexcept : storage_(other.storage_) {
    if (storage_ != nullptr) storage_->retain();
  }
  StorageRef(StorageRef&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)) {}
  StorageRef& operator=(StorageRef other) noexcept {
    std::swap(storage_, other.storage_);
    return *this;
  }
  ~StorageRef() {
    if (storage_ != nullptr) storage_->release();
  }

  // Releases the reference of a tensor of this shape.
  void release_with(Shape& shape) noexcept {
    if (storage_ != nullptr) std::exchange(storage_, nullptr)->release(shape);
  }

  explicit operator bool() const noexcept { return storage_ != nullptr; }
  Storage* operator->() const noexcept { return storage_; }
  Storage& operator*() const noexcept { return *storage_; }
  Storage* get() const noexcept { return storage_; }
  bool operator==(const StorageRef&) const = default;

 private:
  Storage* storage_ = nullptr;
};

}  // namespace cgtree
