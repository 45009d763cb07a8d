// Collects the calls of a group; a call outside of one is a group of its own.
#include "extensions/ranks/checked_collectives.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/room.h"
#include "interop/tensor/empty.h"

namespace cgtree {

CheckedCollectives::CheckedCollectives(int rank, int size, Device device)
    : rank_(rank), size_(size), device_(device) {
  if (rank < 0 || rank >= size) {
    throw InvalidArgument(fmt::format(
        "rank {} of {} ranks: the ranks are 0 to size - 1, and there is at least one", rank, size));
  }
  static_cast<void>(device_api(device));
}

void CheckedCollectives::all_reduce(StreamRef stream, const Tensor& in, const Tensor& out,
                                    Reduction reduction) {
  add(stream, make_all_reduce(*this, stream, in, out, reduction), in, out);
}

void CheckedCollectives::all_gather(StreamRef stream, const Tensor& in, const Tensor& out) {
  add(stream, make_all_gather(*this, stream, in, out), in, out);
}

void CheckedCollectives::broadcast(StreamRef stream, const Tensor& tensor, int root) {
  add(stream, make_broadcast(*this, stream, tensor, root), tensor, tensor);
}

void CheckedCollectives::send(StreamRef stream, const Tensor& tensor, int to) {
  add(stream, make_send(*this, stream, tensor, to), tensor, tensor);
}

void CheckedCollectives::receive(StreamRef stream, const Tensor& tensor, int from) {
  add(stream, make_receive(*this, stream, tensor, from), tensor, tensor);
}

void CheckedCollectives::begin_group() {
  check_alive();
  ++depth_;
}

void CheckedCollectives::end_group() {
  if (depth_ == 0) throw InvalidArgument("end_group() without begin_group()");
  if (--depth_ == 0) enqueue_group();
}

void CheckedCollectives::cancel_group() noexcept {
  depth_ = 0;
  calls_.clear();
  storages_.clear();
}

void CheckedCollectives::add(StreamRef stream, const CollectiveCall& call, const Tensor& a,
                             const Tensor& b) {
  check_alive();
  if (call.elements == 0) return;
  if (!calls_.empty() && stream != stream_) {
    throw InvalidArgument(fmt::format(
        "{} on another stream than what the group began with: a group is one operation on one "
        "stream; end it first",
        describe(call)));
  }
  for (const Tensor* const side : {&a, &b})
    expect_use(side->storage(), stream);
  make_room(calls_);
  storages_.reserve(storages_.size() + 2);
  stream_ = stream;
  calls_.push_back(call);
  storages_.push_back(a.storage());
  if (b.storage() != a.storage()) storages_.push_back(b.storage());
  if (depth_ == 0) enqueue_group();
}

void CheckedCollectives::enqueue_group() {
  const std::vector<CollectiveCall> calls = std::exchange(calls_, {});
  const std::vector<StorageRef> storages = std::exchange(storages_, {});
  check_alive();
  if (calls.empty()) return;
  enqueue(stream_, calls);
  for (const StorageRef& storage : storages)
    note_use(storage, stream_);
}

}  // namespace cgtree
