// Collects the producers' streams and makes streams wait for each other.
#include "interop/tensor/stream_synchronization.h"

#include "base/error.h"
#include "base/format.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"

namespace cgtree {
namespace {

[[noreturn]] void refuse(StreamRef producer, StreamRef consumer) {
  throw CaptureError(
      static_cast<int>(Code::kStreamCaptureIsolation),
      str_format("a tensor whose contents stream {:#x} orders cannot come in on stream {:#x} "
                 "while a capture is open on one and not on the other: import it before the "
                 "capture, or from a stream of the same capture, or without a stream",
                 static_cast<std::uintptr_t>(producer.handle()),
                 static_cast<std::uintptr_t>(consumer.handle())));
}

}  // namespace

std::uint64_t capture_of(StreamRef stream) {
  GraphAPI* const graphs = stream.api().graphs();
  CaptureInfo info;
  if (graphs == nullptr || !ok(graphs->capture_info(stream.handle(), &info))) return 0;
  return info.status == CaptureStatus::kNone ? 0 : info.id;
}

StreamRef order_import(StreamRef producer, StreamRef consumer, SyncPolicy policy) {
  if (!producer || policy == SyncPolicy::kIgnore || producer == consumer) return consumer;
  const std::uint64_t capture = capture_of(consumer);
  if (capture != capture_of(producer)) refuse(producer, consumer);
  if (policy == SyncPolicy::kEnqueue) return producer;
  const bool has_events = producer.api().graphs() != nullptr;
  if (capture == 0 && (policy == SyncPolicy::kSynchronize || !has_events)) {
    const RelaxedCapture relaxed(producer.api().graphs());
    producer.synchronize();
  } else {
    consumer.wait_for(producer);
  }
  return consumer;
}

bool is_read_only(const Tensor& tensor) noexcept {
  return tensor.defined() && tensor.storage()->is_read_only();
}

StreamRef producer_of(const Tensor& tensor) noexcept {
  return tensor.defined() ? tensor.storage()->producer() : StreamRef();
}

void StreamSynchronization::add(StreamRef producer) {
  if (!producer || producer == consumer_) return;
  bool is_known = false;
  for_each([&](StreamRef stream) { is_known = is_known || stream == producer; });
  if (is_known) return;
  if (count_ < first_.size()) {
    first_[count_++] = producer;
  } else {
    more_.push_back(producer);
  }
}

void StreamSynchronization::begin() {
  capture_ = capture_of(consumer_);
  for_each([&](StreamRef producer) {
    if (capture_of(producer) != capture_) refuse(producer, consumer_);
    consumer_.wait_for(producer);
  });
}

void StreamSynchronization::finish() const {
  for_each([&](StreamRef producer) {
    if (capture_of(producer) != capture_) refuse(consumer_, producer);
    producer.wait_for(consumer_);
  });
}

}  // namespace cgtree
