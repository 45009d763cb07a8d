// KeptStorages: memory from elsewhere that the replays of a recording read or write.
#pragma once

#include <utility>
#include <vector>

#include "base/log.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// A KeptStorages keeps memory from elsewhere alive for the replays of a recording. When it ends,
// replays may still be running: it notes their stream at the owners of the memory, which wait for
// it before they use the memory again.
class KeptStorages {
 public:
  KeptStorages() = default;
  KeptStorages(std::vector<StorageRef> storages, StreamRef replays_on)
      : storages_(std::move(storages)), stream_(replays_on) {}
  ~KeptStorages() {
    for (const StorageRef& storage : storages_)
      tell(*storage);
  }
  KeptStorages(KeptStorages&&) = default;
  KeptStorages& operator=(KeptStorages&& other) noexcept {
    std::swap(storages_, other.storages_);
    std::swap(stream_, other.stream_);
    return *this;
  }

 private:
  void tell(Storage& storage) const noexcept {
    try {
      storage.owner().used(storage, stream_);
    } catch (const std::exception& error) {
      log_event(LogLevel::kError, "use_not_noted bytes={} error=\"{}\"", storage.bytes(),
                error.what());
    }
  }

  std::vector<StorageRef> storages_;
  StreamRef stream_;
};

}  // namespace cgtree
