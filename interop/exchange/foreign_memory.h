// The memory of other libraries: the checks before it becomes a tensor, and the storage that keeps
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"
#include "interop/tensor/dtype.h"
#include "interop/tensor/shape.h"
#include "interop/tensor/storage.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Returns the stream on which an imported tensor will be used: the given one, else the thread's
// current one, which may be null.
StreamRef consumer_or_current(StreamRef given);

// Throws BoundaryError unless the address is aligned for elements of this type.
void check_alignment(std::uintptr_t address, DType dtype);

// The unit of the strides of a layout.
enum class StrideUnit { kBytes, kElements };

// Returns the shape of a layout, row-major if there are no strides. Strides of axes with less than
// two indices, and of tensors without elements, are ignored. Throws BoundaryError for a negative
// dimension, for more bytes than an int64 counts, and for what a Shape does not support: negative
// strides, strides that are no multiple of an element, too many dimensions.
Shape shape_of_layout(std::span<const std::int64_t> dims,
                      std::optional<std::span<const std::int64_t>> strides, StrideUnit unit,
                      DType dtype);

// Memory of another library, with what keeps it alive and the stream on which the library uses it.
struct ImportedMemory {
  Device device;
  void* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<void> owner;  // released with the last reference; may be null
  StreamRef producer;           // the other library's stream; may be null
  bool is_read_only = false;
};

// An ImportedStorage is memory of another library as a storage.
//
// When the last reference is released, the producer's stream is made to wait for what was enqueued
// so far on `consumer` and on the streams passed to note_use(); then the owner is released. The
// host does not wait. While a capture is open on either stream that synchronization is impossible,
// and a line of the log says so. Of a stream that was retired before (retire_stream()) it is made
// to wait for what was enqueued there by then.
//
// If the producer's stream is retired, the host waits for it then, so that nothing is left to order
// our work with, and for the users at the end.
//
// The per-thread default stream is a different one on each thread. If it is the producer's, and the
// last reference is released on another thread than the import's, the host waits instead.
class ImportedStorage final : private StorageOwner {
 public:
  // `consumer` orders the contents for us, and may be the producer's stream. Requires that work
  // enqueued there from now on waits for the producer's.
  static StorageRef make(ImportedMemory&& memory, StreamRef consumer);

 private:
  ImportedStorage(ImportedMemory&& memory, StreamRef consumer);

  void release(Storage& storage, bool was_live) noexcept override;
  [[noreturn]] void throw_stale(const Storage& storage) const override;
  void used(Storage& storage, StreamRef stream) override;
  bool may_be_invalidated() const noexcept override { return false; }
  bool is_read_only(const Storage& storage) const noexcept override;
  StreamRef producer(const Storage& storage) const noexcept override;

  friend class ImportList;
  struct User {
    StreamRef stream;  // null once it was retired
    StreamIdentity identity;
    std::shared_ptr<Event> last;  // of one that was retired, or that only its thread can name
  };

  void add_user(StreamRef stream);
  std::vector<User> take_done_users();
  void synchronize_with(const User& user) noexcept;
  bool is_ordered_with(StreamIdentity stream) noexcept;
  bool leave(StreamIdentity stream, const std::shared_ptr<Event>& last) noexcept;

  const ImportedMemory memory_;
  const StreamIdentity producer_;
  const std::thread::id thread_;
  std::atomic<bool> has_producer_ended_{false};
  Storage storage_;
  Mutex<LockRank::kForeignMemory> mutex_;
  std::vector<User> users_;  // each once, without the producer
  std::size_t next_look_ = 0;
  // In the list of those that have a producer's stream; all guarded by its mutex.
  bool is_released_ = false;
  ImportedStorage* next_ = nullptr;
  ImportedStorage* previous_ = nullptr;
};

// Returns a tensor of the memory, `offset` bytes from its begin. Inside a step function, memory
// that one of our tensors has lent to the library (lent_memory.h) comes back as a tensor of that
// storage, and the owner is released at once; everything else becomes an ImportedStorage.
Tensor imported(ImportedMemory&& memory, StreamRef consumer, std::size_t offset, Shape shape,
                DType dtype);

}  // namespace cgtree
