// Communicator: collectives inside the steps of a context, in the order of its calls.
#pragma once

#include <functional>
#include <memory>

#include "cgtree/context.h"
#include "extensions/ranks/collectives.h"

namespace cgtree {

// A Communicator gives a Collectives to the steps of one context only, so that all its uses are in
// one order, that of the context's calls, and NCCL needs no nodes in graphs for an order
// (docs/multi_gpu.md). A recording keeps the Collectives that it uses until the recording ends and
// its work is done.
//
//   cgtree::Communicator communicator(context, collectives);
//   auto step = cgtree::compile(context, "step", [&](cgtree::Tensor x) {
//     cgtree::Tensor y = ...;              // this rank's part of a sum
//     communicator.all_reduce(y);
//     return y;
//   });
//
// Functions enqueue on current_stream(). They throw InvalidArgument outside of a step of the
// context (a step function, between begin() and end(), Context::eager()), in a step whose current
// stream is not the step's own (in a body of a branch or loop there, that of the body), and while
// other code captures that stream; otherwise as those of Collectives. All ranks must take the same
// branches and rounds.
//
// Thread safety: used by the thread that is inside the context.
class Communicator {
 public:
  // Throws InvalidArgument for null collectives, if the devices differ, and if the collectives are
  // of another rank or size than the context's group.
  Communicator(Context& context, std::shared_ptr<Collectives> collectives);
  // Recordings that use the collectives may still be replayed.
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  // The next two are those of the collectives: a rank in [0, size()). They may be called outside of
  // steps.
  int rank() const noexcept;
  int size() const noexcept;

  // Reduces over all ranks, in place.
  void all_reduce(const Tensor& tensor, Reduction reduction = Reduction::kSum) {
    all_reduce(tensor, tensor, reduction);
  }
  void all_reduce(const Tensor& in, const Tensor& out, Reduction reduction = Reduction::kSum);
  // `out` becomes the `in` of all ranks, rank by rank: size() times as many elements, of the same
  // type.
  void all_gather(const Tensor& in, const Tensor& out);
  // `tensor` becomes that of rank `root`. On that rank, too, it must not be read-only.
  void broadcast(const Tensor& tensor, int root);
  // Rank `to`, which is another rank, must receive() as many elements of the same type.
  void send(const Tensor& tensor, int to);
  // Rank `from`, which is another rank, must send() as many elements of the same type.
  void receive(const Tensor& tensor, int from);
  // Makes one operation of all collectives that `body` calls (Collectives::begin_group()). If it
  // throws, nothing is enqueued.
  void grouped(const std::function<void()>& body);

  // Returns the ncclComm_t, for operations that this class lacks; use it at once, on
  // current_stream(), and not while another thread may abort the group, which frees it. Throws as
  // the functions above.
  void* native() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cgtree
