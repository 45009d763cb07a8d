// Checks both sides, enqueues, and tells whose memory is used.
#include "interop/tensor/copy.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "interop/device/current_stream.h"
#include "interop/tensor/empty.h"

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

// The host's own devices cannot see a GPU's memory; a device's streams see the host's.
void expect_within_reach(const Tensor& destination, const Tensor& source, StreamRef stream) {
  for (const Tensor* side : {&source, &destination}) {
    const DeviceType type = side->device().type;
    if (type == DeviceType::kHost || type == stream.device().type) continue;
    throw InvalidArgument(fmt::format(
        "copy() from {} to {} on a stream of {}: it cannot reach memory of {}; use a stream of {}",
        describe(source), describe(destination), to_string(stream.device()),
        to_string(side->device()), to_string(side->device())));
  }
}

Code enqueue_copy(const Tensor& destination, const Tensor& source, StreamRef stream) {
  DeviceAPI& api = stream.api();
  const Device from = source.device();
  const Device to = destination.device();
  void* const data = destination.data();
  if (from.type == to.type && from.type == stream.device().type && from.id != to.id) {
    return api.copy_peer(stream.handle(), data, to.id, source.data(), from.id, source.bytes());
  }
  return api.copy(stream.handle(), data, source.data(), source.bytes());
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
  expect_within_reach(destination, source, stream);
  check(enqueue_copy(destination, source, stream),
        fmt::format("copy {} to {}", describe(source), to_string(destination.device())));
  for (const Tensor* side : {&source, &destination}) {
    note_use(side->storage(), stream);
  }
}

}  // namespace cgtree
