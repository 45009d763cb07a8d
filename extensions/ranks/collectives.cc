// Checks the arguments of collectives, and collects the calls of a group.
#include "extensions/ranks/collectives.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/room.h"
#include "extensions/ranks/collective_call.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

void expect_stream(const Collectives& own, StreamRef stream, std::string_view what) {
  if (stream && stream.device() == own.device()) return;
  throw InvalidArgument(
      str_format("{} on {}: rank {} works on {}; pass a stream of that device", what,
                 stream ? "a stream of " + to_string(stream.device()) : "no stream", own.rank(),
                 to_string(own.device())));
}

void expect_tensor(const Collectives& own, const Tensor& tensor, std::string_view what) {
  if (!tensor.defined()) throw InvalidArgument(str_format("{} of an undefined tensor", what));
  if (tensor.device() != own.device()) {
    throw InvalidArgument(str_format("{} of {}: rank {} works on {}", what, describe(tensor),
                                     own.rank(), to_string(own.device())));
  }
  if (!tensor.is_contiguous()) {
    throw InvalidArgument(str_format("{} of {}, which is not contiguous: pass a copy that is", what,
                                     describe(tensor)));
  }
}

void expect_output(const Collectives& own, const Tensor& tensor, std::string_view what) {
  expect_tensor(own, tensor, what);
  if (!tensor.storage()->is_read_only()) return;
  throw InvalidArgument(str_format("{} into {}, which is read-only", what, describe(tensor)));
}

void expect_rank(const Collectives& own, int rank, std::string_view what) {
  if (rank >= 0 && rank < own.size()) return;
  throw InvalidArgument(
      str_format("{} rank {}: there are {} ranks, the first one is 0", what, rank, own.size()));
}

void expect_other(const Collectives& own, int rank, std::string_view what) {
  expect_rank(own, rank, what);
  if (rank != own.rank()) return;
  throw InvalidArgument(
      str_format("{} rank {}, which is this rank itself: use copy()", what, rank));
}

bool can_be_reduced(DType dtype) noexcept {
  return dtype <= DType::kFloat64 && dtype != DType::kBool;
}

}  // namespace

Collectives::Collectives(int rank, int size, Device device)
    : rank_(rank), size_(size), device_(device) {
  if (rank < 0 || rank >= size) {
    throw InvalidArgument(str_format(
        "rank {} of {} ranks: the ranks are 0 to size - 1, and there is at least one", rank, size));
  }
  static_cast<void>(device_api(device));
}

Collectives::~Collectives() = default;

void Collectives::all_reduce(StreamRef stream, const Tensor& in, const Tensor& out,
                             Reduction reduction) {
  expect_stream(*this, stream, "all_reduce()");
  expect_tensor(*this, in, "all_reduce()");
  expect_output(*this, out, "all_reduce()");
  if (in.dtype() != out.dtype() || !std::ranges::equal(in.shape().dims(), out.shape().dims())) {
    throw InvalidArgument(
        str_format("all_reduce() of {} into {}: shape and element type must be the same",
                   describe(in), describe(out)));
  }
  if (!can_be_reduced(in.dtype())) {
    throw InvalidArgument(
        str_format("all_reduce() of {}: only integers, float16, bfloat16, float32 and float64 "
                   "can be reduced",
                   describe(in)));
  }
  add(stream, {.kind = CollectiveKind::kAllReduce, .reduction = reduction}, &in, &out);
}

void Collectives::all_gather(StreamRef stream, const Tensor& in, const Tensor& out) {
  expect_stream(*this, stream, "all_gather()");
  expect_tensor(*this, in, "all_gather()");
  expect_output(*this, out, "all_gather()");
  if (in.dtype() != out.dtype() || out.elements() != in.elements() * size()) {
    throw InvalidArgument(str_format(
        "all_gather() of {} from each of {} ranks into {}: the element types must be the same, and "
        "the elements {} times as many",
        describe(in), size(), describe(out), size()));
  }
  add(stream, {.kind = CollectiveKind::kAllGather}, &in, &out);
}

void Collectives::broadcast(StreamRef stream, const Tensor& tensor, int root) {
  expect_stream(*this, stream, "broadcast()");
  expect_output(*this, tensor, "broadcast()");
  expect_rank(*this, root, "broadcast() from");
  add(stream, {.kind = CollectiveKind::kBroadcast, .peer = root}, &tensor, &tensor);
}

void Collectives::send(StreamRef stream, const Tensor& tensor, int to) {
  expect_stream(*this, stream, "send()");
  expect_tensor(*this, tensor, "send()");
  expect_other(*this, to, "send() to");
  add(stream, {.kind = CollectiveKind::kSend, .peer = to}, &tensor, nullptr);
}

void Collectives::receive(StreamRef stream, const Tensor& tensor, int from) {
  expect_stream(*this, stream, "receive()");
  expect_output(*this, tensor, "receive()");
  expect_other(*this, from, "receive() from");
  add(stream, {.kind = CollectiveKind::kReceive, .peer = from}, nullptr, &tensor);
}

void Collectives::begin_group() {
  check_alive();
  ++depth_;
}

void Collectives::end_group() {
  if (depth_ == 0) throw InvalidArgument("end_group() without begin_group()");
  if (--depth_ == 0) enqueue_group();
}

void Collectives::cancel_group() noexcept {
  depth_ = 0;
  calls_.clear();
  storages_.clear();
}

// A call outside of a group is a separate group.
void Collectives::add(StreamRef stream, CollectiveCall call, const Tensor* in, const Tensor* out) {
  const Tensor& own = in != nullptr ? *in : *out;
  call.dtype = own.dtype();
  call.elements = own.elements();
  if (in != nullptr) call.in = in->data();
  if (out != nullptr) call.out = out->data();
  check_alive();
  if (call.elements == 0) return;
  if (!calls_.empty() && stream != stream_) {
    throw InvalidArgument(str_format(
        "{} on another stream than what the group began with: a group is one operation on one "
        "stream; end it first",
        describe(call)));
  }
  for (const Tensor* const side : {in, out})
    if (side != nullptr) expect_use(side->storage(), stream);
  make_room(calls_);
  storages_.reserve(storages_.size() + 2);
  stream_ = stream;
  calls_.push_back(call);
  storages_.push_back(own.storage());
  if (out != nullptr && out->storage() != own.storage()) storages_.push_back(out->storage());
  if (depth_ == 0) enqueue_group();
}

void Collectives::enqueue_group() {
  const std::vector<CollectiveCall> calls = std::exchange(calls_, {});
  const std::vector<StorageRef> storages = std::exchange(storages_, {});
  check_alive();
  if (calls.empty()) return;
  enqueue(stream_, calls);
  for (const StorageRef& storage : storages)
    note_use(storage, stream_);
}

}  // namespace cgtree
