// Checks both sides, enqueues, and tells whose memory is used.
#include "interop/copy.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "interop/current_stream.h"
#include "interop/empty.h"

namespace cgtree {
namespace {

void expect_same_layout(const Tensor& destination, const Tensor& source) {
  if (!destination.defined() || !source.defined()) {
    throw InvalidArgument(
        fmt::format("copy() from {} to {}: both must hold something",
                    source.defined() ? describe(source) : "an undefined tensor",
                    destination.defined() ? describe(destination) : "an undefined tensor"));
  }
  if (destination.dtype() != source.dtype() ||
      !std::ranges::equal(destination.shape().dims(), source.shape().dims())) {
    throw InvalidArgument(
        fmt::format("copy() from {} to {}: shape and element type must be the same",
                    describe(source), describe(destination)));
  }
  if (!destination.is_contiguous() || !source.is_contiguous()) {
    throw InvalidArgument(fmt::format("copy() from {} to {}: both must be contiguous",
                                      describe(source), describe(destination)));
  }
}

}  // namespace

void copy(const Tensor& destination, const Tensor& source, StreamRef stream) {
  expect_same_layout(destination, source);
  if (!stream) stream = current_stream();
  if (source.bytes() == 0) return;
  if (destination.storage()->is_read_only()) {
    throw InvalidArgument(fmt::format("copy() from {} to {}: the destination is read-only",
                                      describe(source), describe(destination)));
  }
  void* const to = destination.data();
  check(stream.api().copy(stream.handle(), to, source.data(), source.bytes()),
        fmt::format("copy {} to {}", describe(source), to_string(destination.device())));
  for (const Tensor* side : {&source, &destination}) {
    note_use(side->storage(), stream);
  }
}

}  // namespace cgtree
