// StreamSynchronization: before a piece of work our stream waits for those the tensors came from, and after it
// those wait for ours; once per stream, however many tensors share it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// What an import does about the producer's stream. Source of the choices: CUDA Array Interface,
// version 3, Synchronization.
enum class SyncPolicy {
  kEventWait,    // our stream waits for the producer's; the host does not
  kSynchronize,  // the host waits for the producer's stream
  kEnqueue,      // our work is to go to the producer's stream; nobody waits
  kIgnore,       // nothing: whoever asks for it answers for the order
};

// Makes what is enqueued on `consumer` from now on see what the producer has enqueued. Returns the
// stream that orders the contents from now on: `consumer`, or for kEnqueue `producer`. `producer`
// may name none: then nothing is pending.
//
// While either stream captures, only one that belongs to the same capture can be waited for, and
// that becomes an edge of the graph. Else throws CaptureError, before it has touched a stream:
// import before the capture. Throws DeviceError.
StreamRef order_import(StreamRef producer, StreamRef consumer, SyncPolicy policy);

// Of the capture the stream is in; 0 if it is in none, or cannot be asked: a legacy stream refuses
// while others capture, and is in no capture itself.
std::uint64_t capture_of(StreamRef stream);

// Whether the memory may not be written.
bool is_read_only(const Tensor& tensor) noexcept;

// The stream on which the library that `tensor` came from works; names none for our own tensors and
// for those that came without a stream.
StreamRef producer_of(const Tensor& tensor) noexcept;

// Takes no heap memory for up to eight streams. One thread.
class StreamSynchronization {
 public:
  explicit StreamSynchronization(StreamRef consumer) noexcept : consumer_(consumer) {}

  // `tensor` may hold nothing.
  void add(const Tensor& tensor);
  // Throws CaptureError while either side captures (see order_import()), DeviceError.
  void begin() const;
  // As begin().
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
  std::array<StreamRef, 8> first_;
  std::size_t count_ = 0;
  std::vector<StreamRef> more_;
};

}  // namespace cgtree
