// Communicator: collectives inside the steps of a context, in the order of its calls.
#pragma once

#include <memory>
#include <utility>

#include "cgtree/context.h"
#include "interop/collectives/collectives.h"

namespace cgtree {

// A Communicator lets the steps of one context use a Collectives, and nothing else: so all its uses
// are in one order, that of the context's calls, and NCCL needs no nodes in graphs that would make
// an order (docs/multi_gpu.md). A recording keeps the Collectives that it uses until it ends, and
// its work with it.
//
//   cgtree::Communicator communicator(context, collectives);
//   auto step = cgtree::compile(context, "step", [&](cgtree::Tensor x) {
//     cgtree::Tensor y = ...;              // this rank's part of a sum
//     communicator.all_reduce(y);
//     return y;
//   });
//
// Functions enqueue on current_stream(). They throw InvalidArgument outside of a step of the
// context (a step function, between begin() and end(), Context::eager()), inside of one whose
// current stream is another than the step's, and while other code captures that stream; else what
// those of Collectives throw.
//
// Thread safety: used by the thread that is inside the context.
class Communicator {
 public:
  // Throws InvalidArgument for null collectives, and if the devices differ.
  Communicator(Context& context, std::shared_ptr<Collectives> collectives);
  // Recordings that use the collectives may still be replayed.
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  int rank() const noexcept;
  int size() const noexcept;

  // In place.
  void all_reduce(const Tensor& tensor, Reduction reduction = Reduction::kSum) {
    all_reduce(tensor, tensor, reduction);
  }
  void all_reduce(const Tensor& in, const Tensor& out, Reduction reduction = Reduction::kSum);
  void all_gather(const Tensor& in, const Tensor& out);
  void broadcast(const Tensor& tensor, int root);
  void send(const Tensor& tensor, int to);
  void receive(const Tensor& tensor, int from);
  // What `body` calls is one operation (Collectives::begin_group()). If it throws, nothing of it is
  // enqueued.
  template <typename Body>
  void grouped(Body&& body) {
    Grouped scope(*this);
    std::forward<Body>(body)();
    scope.end();
  }

  // Returns the ncclComm_t, for what is not here; to be used at once, on current_stream(). Throws
  // where the functions above would.
  void* native() const;

 private:
  struct State;
  // Cancels the group unless end() was called.
  class Grouped {
   public:
    explicit Grouped(Communicator& communicator);
    ~Grouped();
    Grouped(const Grouped&) = delete;
    Grouped& operator=(const Grouped&) = delete;
    void end();

   private:
    State* state_;  // null once ended
  };

  std::unique_ptr<State> state_;
};

}  // namespace cgtree
