// Storage: a piece of device memory with one intrusive count; the last release tells its owner.
//
// A storage is live from its creation (or revival by its owner) until either its last reference
// goes or its owner gives the memory up while handles are still held. The two race; one
// compare-and-swap on `state_` decides, so that exactly one side acts on the end of a life:
//   live -> dead   by the last release: the owner may reuse the memory and the Storage
//   live -> stale  by the owner (mark_step): data() throws from then on, the memory is the owner's
//
// Threads: references may be copied and released on any thread; the owner's verbs belong to its
// lane.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "interop/device/device.h"
#include "interop/device/stream.h"

namespace cgtree {

class Storage;

// What stands behind a storage: where its memory goes when nobody holds it.
class StorageOwner {
 public:
  // The last reference is gone. `was_live`: the life ended now, not earlier by give_up().
  // The owner disposes of the Storage object too. Any thread.
  virtual void release(Storage& storage, bool was_live) noexcept = 0;
  // data() was called on a stale storage: throws StaleTensor with the names of what was held.
  [[noreturn]] virtual void throw_stale(const Storage& storage) const = 0;
  // Work enqueued on `stream`, not the storage's own, uses the memory.
  virtual void used(Storage& storage, StreamRef stream) {
    static_cast<void>(storage);
    static_cast<void>(stream);
  }
  // Whether give_up() may come while handles are held.
  virtual bool may_give_up() const noexcept { return true; }
  // Whether nobody may write. Asked of borrowed storages only.
  virtual bool is_read_only(const Storage& storage) const noexcept {
    static_cast<void>(storage);
    return false;
  }
  // Where another library works on the memory; may name no stream. Asked of borrowed storages only.
  virtual StreamRef producer(const Storage& storage) const noexcept {
    static_cast<void>(storage);
    return {};
  }

 protected:
  ~StorageOwner() = default;
};

// What an owner notes on its storages; nobody else reads it.
struct StorageTag {
  std::uint8_t kind = 0;       // which of the owner's ways to release it
  void* place = nullptr;       // which of the owner's places this is
  std::uint32_t position = 0;  // which one of several
  std::uint32_t function = 0;  // which step function made it
  std::uint64_t number = 0;    // when
};

class Storage {
 public:
  // kBorrowed: live, and never anything else; but its owner has to be asked before each use.
  enum class State : std::uint8_t { kLive, kDead, kStale, kBorrowed };

  // Live, with no reference yet. `stream` is the stream that orders the contents (may name none).
  Storage(StorageOwner& owner, Device device, StreamRef stream, void* data,
          std::size_t bytes) noexcept
      : owner_(&owner), data_(data), device_(device), bytes_(bytes), stream_(stream) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // Throws StaleTensor once the memory was given up.
  void* data() const {
    if (state_.load(std::memory_order_acquire) == State::kStale) [[unlikely]] {
      owner_->throw_stale(*this);
    }
    return data_;
  }
  // The address alone, stale or not. Not for dereferencing.
  std::uintptr_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(data_); }
  std::size_t bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }
  StreamRef stream() const noexcept { return stream_; }
  StorageOwner& owner() const noexcept { return *owner_; }
  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  std::uint32_t references() const noexcept { return references_.load(std::memory_order_acquire); }

  bool is_read_only() const noexcept {
    return state() == State::kBorrowed && owner_->is_read_only(*this);
  }
  StreamRef producer() const noexcept {
    return state() == State::kBorrowed ? owner_->producer(*this) : StreamRef();
  }

  // For the owner.

  // Before the first reference.
  void lend() noexcept { state_.store(State::kBorrowed, std::memory_order_release); }
  // Ends the life while handles are held. False if the last release came first.
  bool give_up() noexcept {
    State expected = State::kLive;
    return state_.compare_exchange_strong(expected, State::kStale, std::memory_order_acq_rel);
  }
  // Begins another life. Requires that no reference is held and the state is dead.
  void revive() noexcept { state_.store(State::kLive, std::memory_order_release); }
  // Gives the contents another place; every handle sees it. Requires that the bytes were copied.
  void move_to(void* data) noexcept { data_ = data; }

 private:
  friend class StorageRef;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    State expected = State::kLive;
    const bool was_live =
        state_.compare_exchange_strong(expected, State::kDead, std::memory_order_acq_rel);
    owner_->release(*this, was_live);
  }

  // What every replay asks of every input comes first, in one cache line.
  StorageOwner* const owner_;
  void* data_;
  Device device_;
  std::atomic<std::uint32_t> references_{0};
  std::atomic<State> state_{State::kLive};

 public:
  StorageTag tag;

 private:
  std::size_t bytes_;
  StreamRef stream_;
};

// A counted reference to a storage.
class StorageRef {
 public:
  StorageRef() = default;
  explicit StorageRef(Storage& storage) noexcept : storage_(&storage) { storage_->retain(); }
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

  explicit operator bool() const noexcept { return storage_ != nullptr; }
  Storage* operator->() const noexcept { return storage_; }
  Storage& operator*() const noexcept { return *storage_; }
  Storage* get() const noexcept { return storage_; }
  bool operator==(const StorageRef&) const = default;

 private:
  Storage* storage_ = nullptr;
};

}  // namespace cgtree
