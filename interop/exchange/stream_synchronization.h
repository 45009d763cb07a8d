// StreamSynchronization: before a piece of work our stream waits for those the tensors came from, and after it
// those wait for ours; once per stream, however many tensors share it.
#pragma once

#include <array>
#include <vector>

#include "interop/tensor/tensor.h"

namespace cgtree {

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
