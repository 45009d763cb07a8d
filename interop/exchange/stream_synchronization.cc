// Collects the streams, then makes the edges.
#include "interop/exchange/stream_synchronization.h"

#include "interop/exchange/import_order.h"

namespace cgtree {

bool is_read_only(const Tensor& tensor) noexcept {
  return tensor.defined() && tensor.storage()->is_read_only();
}

StreamRef producer_of(const Tensor& tensor) noexcept {
  return tensor.defined() ? tensor.storage()->producer() : StreamRef();
}

void StreamSynchronization::add(const Tensor& tensor) {
  const StreamRef producer = producer_of(tensor);
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

void StreamSynchronization::begin() const {
  for_each(
      [&](StreamRef producer) { (void)order_import(producer, consumer_, SyncPolicy::kEventWait); });
}

void StreamSynchronization::finish() const {
  for_each(
      [&](StreamRef producer) { (void)order_import(consumer_, producer, SyncPolicy::kEventWait); });
}

}  // namespace cgtree
