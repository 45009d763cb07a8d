// ImportedStorage: memory of another library as a storage, with what keeps it alive and its stream.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "interop/tensor/storage.h"

namespace cgtree {

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
