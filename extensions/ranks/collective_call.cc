// Checks the arguments of collectives, the same for all implementations.
#include "extensions/ranks/collective_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace cgtree {
namespace {

constexpr std::string_view kKinds[] = {"all_reduce", "all_gather", "broadcast", "send", "receive"};
constexpr std::string_view kReductions[] = {"sum", "product", "minimum", "maximum"};

void expect_stream(const Collectives& own, StreamRef stream, std::string_view what) {
  if (stream && stream.device() == own.device()) return;
  throw InvalidArgument(
      fmt::format("{} on {}: rank {} works on {}; pass a stream of that device", what,
                  stream ? "a stream of " + to_string(stream.device()) : "no stream", own.rank(),
                  to_string(own.device())));
}

void expect_tensor(const Collectives& own, const Tensor& tensor, std::string_view what) {
  if (!tensor.defined()) throw InvalidArgument(fmt::format("{} of an undefined tensor", what));
  if (tensor.device() != own.device()) {
    throw InvalidArgument(fmt::format("{} of {}: rank {} works on {}", what, describe(tensor),
                                      own.rank(), to_string(own.device())));
  }
  if (!tensor.is_contiguous()) {
    throw InvalidArgument(fmt::format("{} of {}, which is not contiguous: pass a copy that is",
                                      what, describe(tensor)));
  }
}

void expect_output(const Collectives& own, const Tensor& tensor, std::string_view what) {
  expect_tensor(own, tensor, what);
  if (!tensor.storage()->is_read_only()) return;
  throw InvalidArgument(fmt::format("{} into {}, which is read-only", what, describe(tensor)));
}

void expect_rank(const Collectives& own, int rank, std::string_view what) {
  if (rank >= 0 && rank < own.size()) return;
  throw InvalidArgument(
      fmt::format("{} rank {}: there are {} ranks, the first one is 0", what, rank, own.size()));
}

void expect_other(const Collectives& own, int rank, std::string_view what) {
  expect_rank(own, rank, what);
  if (rank != own.rank()) return;
  throw InvalidArgument(
      fmt::format("{} rank {}, which is this rank itself: use copy()", what, rank));
}

bool can_be_reduced(DType dtype) noexcept {
  return dtype <= DType::kFloat64 && dtype != DType::kBool;
}

}  // namespace

bool match(const CollectiveCall& a, const CollectiveCall& b) noexcept {
  return a.kind == b.kind && a.dtype == b.dtype && a.reduction == b.reduction && a.peer == b.peer &&
         a.elements == b.elements;
}

std::string_view name(CollectiveKind kind) noexcept {
  return kKinds[static_cast<int>(kind)];
}

std::string describe(const CollectiveCall& call) {
  std::string text(name(call.kind));
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      text += fmt::format("({})", kReductions[static_cast<int>(call.reduction)]);
      break;
    case CollectiveKind::kAllGather:
      break;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReceive:
      text += fmt::format(" from rank {}", call.peer);
      break;
    case CollectiveKind::kSend:
      text += fmt::format(" to rank {}", call.peer);
      break;
  }
  return fmt::format("{} of {} {}", text, call.elements, name(call.dtype));
}

CollectiveCall make_all_reduce(const Collectives& own, StreamRef stream, const Tensor& in,
                               const Tensor& out, Reduction reduction) {
  expect_stream(own, stream, "all_reduce()");
  expect_tensor(own, in, "all_reduce()");
  expect_output(own, out, "all_reduce()");
  if (in.dtype() != out.dtype() || !std::ranges::equal(in.shape().dims(), out.shape().dims())) {
    throw InvalidArgument(
        fmt::format("all_reduce() of {} into {}: shape and element type must be the same",
                    describe(in), describe(out)));
  }
  if (!can_be_reduced(in.dtype())) {
    throw InvalidArgument(
        fmt::format("all_reduce() of {}: only integers, float16, bfloat16, float32 and float64 "
                    "can be reduced",
                    describe(in)));
  }
  return {.kind = CollectiveKind::kAllReduce,
          .dtype = in.dtype(),
          .reduction = reduction,
          .elements = in.elements(),
          .in = in.data(),
          .out = out.data()};
}

CollectiveCall make_all_gather(const Collectives& own, StreamRef stream, const Tensor& in,
                               const Tensor& out) {
  expect_stream(own, stream, "all_gather()");
  expect_tensor(own, in, "all_gather()");
  expect_output(own, out, "all_gather()");
  if (in.dtype() != out.dtype() || out.elements() != in.elements() * own.size()) {
    throw InvalidArgument(fmt::format(
        "all_gather() of {} from each of {} ranks into {}: the element types must be the same, and "
        "the elements {} times as many",
        describe(in), own.size(), describe(out), own.size()));
  }
  return {.kind = CollectiveKind::kAllGather,
          .dtype = in.dtype(),
          .elements = in.elements(),
          .in = in.data(),
          .out = out.data()};
}

CollectiveCall make_broadcast(const Collectives& own, StreamRef stream, const Tensor& tensor,
                              int root) {
  expect_stream(own, stream, "broadcast()");
  expect_output(own, tensor, "broadcast()");
  expect_rank(own, root, "broadcast() from");
  return {.kind = CollectiveKind::kBroadcast,
          .dtype = tensor.dtype(),
          .peer = root,
          .elements = tensor.elements(),
          .in = tensor.data(),
          .out = tensor.data()};
}

CollectiveCall make_send(const Collectives& own, StreamRef stream, const Tensor& tensor, int to) {
  expect_stream(own, stream, "send()");
  expect_tensor(own, tensor, "send()");
  expect_other(own, to, "send() to");
  return {.kind = CollectiveKind::kSend,
          .dtype = tensor.dtype(),
          .peer = to,
          .elements = tensor.elements(),
          .in = tensor.data()};
}

CollectiveCall make_receive(const Collectives& own, StreamRef stream, const Tensor& tensor,
                            int from) {
  expect_stream(own, stream, "receive()");
  expect_output(own, tensor, "receive()");
  expect_other(own, from, "receive() from");
  return {.kind = CollectiveKind::kReceive,
          .dtype = tensor.dtype(),
          .peer = from,
          .elements = tensor.elements(),
          .out = tensor.data()};
}

}  // namespace cgtree
