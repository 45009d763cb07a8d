// import_memory(): memory of another library as a storage, which orders the library with our work.
#pragma once

#include <cstddef>
#include <memory>

#include "interop/device/device.h"
#include "interop/device/stream.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// Memory of another library, with its owner and the stream on which the library uses it.
struct ImportedMemory {
  Device device;
  void* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<void> owner;  // released with the last reference; may be null
  StreamRef producer;           // the other library's stream; may be null
  bool is_read_only = false;
};

// Makes a storage of the memory. `consumer` orders the contents for us, and may be the producer's
// stream. Requires: work enqueued there from now on waits for the producer's.
//
// When the last reference is released, the producer's stream waits for work enqueued so far on
// `consumer` and on the streams passed to note_use(); then the owner is released. The host does not
// wait. While a capture is open on either stream, that synchronization is impossible, and the log
// says so. For a stream that was retired earlier (retire_stream()), it waits for the work enqueued
// there until then.
//
// If the producer's stream is retired, the host waits for it then, because no stream is left to
// order our work with, and at the end it waits for the users.
//
// The per-thread default stream differs by thread. If it is the producer's, and the last reference
// is released on another thread than the import's, the host waits instead.
StorageRef import_memory(ImportedMemory&& memory, StreamRef consumer);

}  // namespace cgtree
