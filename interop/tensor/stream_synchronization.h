// StreamSynchronization: orders our work with the work of the libraries that tensors come from.
//
// Example: a call on stream S takes three tensors that were imported from stream P, and one from Q.
// begin() makes S wait for P and for Q, once each. After the call finish() makes P and Q wait for
// S. The host does not wait.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// The synchronization of an import with the producer's stream. Source: CUDA Array Interface,
// version 3, Synchronization.
enum class SyncPolicy {
  kEventWait,    // our stream waits for the producer's; the host does not
  kSynchronize,  // the host waits for the producer's stream
  kEnqueue,      // the caller enqueues its work on the producer's stream; nothing waits
  kIgnore,       // nothing waits: the caller is responsible for the order
};

// Makes work enqueued on `consumer` from now on wait for work enqueued on `producer`. Returns the
// stream that orders the contents from now on: `consumer`, or for kEnqueue `producer`. If
// `producer` is null, nothing is pending.
//
// While either stream captures, both must belong to the same capture; the wait becomes an edge of
// the graph. Otherwise throws CaptureError before any stream is touched: import before the capture.
// Throws DeviceError.
StreamRef order_import(StreamRef producer, StreamRef consumer, SyncPolicy policy);

// Returns the id of the capture that the stream is in; 0 if it is in none, or cannot be queried: a
// legacy stream refuses the query while others capture, and is in no capture itself.
std::uint64_t capture_of(StreamRef stream);

// Returns whether the memory of the tensor may not be written.
bool is_read_only(const Tensor& tensor) noexcept;

// Returns the stream of the library that `tensor` came from; null for our own tensors and for those
// imported without a stream.
StreamRef producer_of(const Tensor& tensor) noexcept;

// A StreamSynchronization makes the consumer's stream wait for the producers of some tensors before
// a piece of work, and the producers wait for the consumer after it; once per stream, however many
// tensors share it. Does not allocate for up to eight streams. Thread safety: one thread.
class StreamSynchronization {
 public:
  explicit StreamSynchronization(StreamRef consumer) noexcept : consumer_(consumer) {}

  // Adds the producer of `tensor`, which may be undefined.
  void add(const Tensor& tensor) { add(producer_of(tensor)); }
  // Adds a producer, or null.
  void add(StreamRef producer);
  // Makes the consumer wait for the producers. Throws CaptureError while either side captures (see
  // order_import()); DeviceError.
  void begin();
  // Makes the producers wait for the consumer. Throws as begin() does.
  void finish() const;

  std::size_t streams() const noexcept { return count_ + more_.size(); }

 private:
  template <typename Function>
  void for_each(Function function) const {
    for (std::size_t i = 0; i < count_; ++i)
      function(first_[i]);
    for (const StreamRef stream : more_)
      function(stream);
  }

  StreamRef consumer_;
  std::uint64_t capture_ = 0;  // the consumer's capture when begin() was called
  std::array<StreamRef, 8> first_;
  std::size_t count_ = 0;
  std::vector<StreamRef> more_;
};

}  // namespace cgtree
