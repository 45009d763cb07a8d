// What other libraries' memory has to be before it becomes a tensor: in reach, and aligned.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "interop/device/device_api.h"
#include "interop/device/stream.h"
#include "interop/tensor/dtype.h"
#include "interop/tensor/shape.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// The stream on which an imported tensor is to be used: the one given, else the thread's current
// one; may name none.
StreamRef consumer_or_current(StreamRef given);

// The device of the type of `first` that `data` lies on; `api` serves that type. Memory that every
// device of the type reaches (pinned, managed) lies on `first`; so does all memory where the type
// cannot tell. Throws BoundaryError for memory that its devices cannot reach and, if `first` is
// wanted, for memory of another one. May be called while a capture is open.
Device locate(DeviceAPI& api, Device first, const void* data, bool is_wanted);

// Throws BoundaryError unless elements of this type may lie there.
void check_alignment(std::uintptr_t address, DType dtype);

// How the strides of a layout are given.
enum class StrideUnit { kBytes, kElements };

// Without strides, row-major: as are, whatever is given, the strides of axes with less than two
// indices and of tensors without elements. Throws BoundaryError for a negative dimension, for more
// bytes than an int64 counts, and for what a Shape cannot say: negative strides, strides that are
// no multiple of an element, too many dimensions.
Shape shape_of_layout(std::span<const std::int64_t> dims,
                      std::optional<std::span<const std::int64_t>> strides, StrideUnit unit,
                      DType dtype);

struct ImportedMemory {
  Device device;
  void* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<void> owner;  // dropped with the last reference; may be null
  StreamRef producer;           // where the other library works on it; may name none
  bool is_read_only = false;
};

// When the last reference goes, the producer's stream waits for what was enqueued so far on
// `consumer` and on the streams that note_use() told of (the return edge), then the owner is
// dropped: the host does not wait. Where a capture is open on either stream there can be no such
// edge, and a line of the log says so.
//
// The per-thread default stream is another on each thread. Where the producer's is that, and the
// last reference goes on another thread than the import's, the host waits instead.
class ImportedStorage final : private StorageOwner {
 public:
  // `consumer` orders the contents for us, and may be the producer's. Work enqueued there from now
  // on must be behind the producer's.
  static StorageRef make(ImportedMemory&& memory, StreamRef consumer);

 private:
  ImportedStorage(ImportedMemory&& memory, StreamRef consumer);

  void release(Storage& storage, bool was_live) noexcept override;
  [[noreturn]] void throw_stale(const Storage& storage) const override;
  void used(Storage& storage, StreamRef stream) override;
  bool may_give_up() const noexcept override { return false; }
  bool is_read_only(const Storage& storage) const noexcept override;
  StreamRef producer(const Storage& storage) const noexcept override;

  void return_from(StreamRef user) noexcept;

  const ImportedMemory memory_;
  const std::thread::id thread_;
  Storage storage_;
  std::mutex mutex_;
  std::vector<StreamRef> users_;  // each once; never the producer
};

}  // namespace cgtree
