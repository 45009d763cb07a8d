// eager_break(): a part of a step that stays out of its graph.
//
//   launch_projections(current_stream(), q, k, v);
//   cgtree::eager_break([=](const cgtree::StepValues& values) {
//     const auto& lengths = values.get<Lengths>(2);      // input 2 is a step block
//     launch_attention(cgtree::current_stream(), q, k, v, out, lengths);
//   });
//   launch_output(current_stream(), out);
//
// The graph ends in front of the break, and another one begins behind it. A replay launches the
// one, calls the function on the caller's thread, and launches the other. All the rest is one: one
// decision, one proof, one pool.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <type_traits>

#include "cgtree/values/input_list.h"

namespace cgtree {

// StepValues are the inputs that the present call passes by value: see step_block() and
// BindingOptions::host_bytes. Valid while the function of the break runs.
class StepValues {
 public:
  // Borrows the inputs. Made for each call of the function of a break.
  explicit StepValues(InputList inputs) noexcept : inputs_(inputs) {}

  // Returns the value of input, or binding, `i`. Throws InvalidArgument unless it is passed by
  // value.
  std::span<const std::byte> bytes(std::size_t i) const;
  // The same as a T. Throws InvalidArgument, with both sizes, if it has another size.
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  const T& get(std::size_t i) const {
    expect_size(i, sizeof(T));
    return *reinterpret_cast<const T*>(bytes(i).data());
  }

 private:
  void expect_size(std::size_t i, std::size_t bytes) const;

  InputList inputs_;
};

// The function of a break, which is called on the thread of the call. A recording keeps it.
using EagerBreak = std::function<void(const StepValues&)>;

// Calls the function at this point of the step: now, while the step runs without a graph; in each
// replay, and not now, while it is recorded. The function enqueues its work on current_stream(),
// may ask for current_key(), allocate with empty(), and wait for the device. It may use the
// addresses of memory that the step has allocated, but hold no tensor of it, draws no random
// numbers, asks for no axis_length(), and has no break of its own. In a replay no recording is
// evicted for what it allocates. The call throws what the function throws, and the rest of the step
// does not run. Once recorded, it is destroyed with its recording, outside of the context: what it
// owns may call the context. It may assign the variables that were passed to the call, which goes
// on with what it was given.
//
// Side streams must be joined in front of a break. Throws InvalidArgument outside of a step, and in
// a step that is called by another one; CaptureError if the capture so far cannot be kept, or
// while a stream of the caller captures.
void eager_break(EagerBreak work);

}  // namespace cgtree
