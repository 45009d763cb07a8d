// eager_break(): a part of a step that stays out of its graph.
//
//   launch_projections(current_stream(), q, k, v);
//   cgtree::eager_break([=](const cgtree::StepValues& values) {
//     const auto& lengths = values.get<Lengths>(2);      // input 2 is a step block
//     launch_attention(cgtree::current_stream(), q, k, v, out, lengths);
//   });
//   launch_output(current_stream(), out);
//
// The graph ends before the break, and a second graph begins after it. A replay launches the first
// graph, calls the function on the caller's thread, and launches the second. Both graphs belong to
// one recording: there is one decision, one check of the inputs and one pool.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <type_traits>

#include "cgtree/values/input_list.h"

namespace cgtree {

// A StepValues gives access to the inputs that the present call passes by value: see step_block()
// and BindingOptions::host_bytes. Valid while the function of the break runs.
class StepValues {
 public:
  // Borrows the inputs. A call makes one for each function of a break.
  explicit StepValues(InputList inputs) noexcept : inputs_(inputs) {}

  // Returns the bytes of input, or binding, `i`. Throws InvalidArgument unless it is passed by
  // value.
  std::span<const std::byte> bytes(std::size_t i) const;
  // As bytes(), but as a T. Throws InvalidArgument, with both sizes, if the value has another size.
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

// Calls the function at this point of the step: now, if the step runs without a graph; in each
// replay, and not now, if the step is recorded. The function enqueues its work on current_stream(),
// may ask for current_key(), allocate with empty(), and wait for the device. It may use the
// addresses of memory that the step has allocated, but must not keep a tensor of it, draw random
// numbers, ask for axis_length(), or contain a break. During a replay its allocations evict no
// recording. An exception of the function ends the call; the rest of the step does not run. Once
// recorded, the function is destroyed with its recording, outside of the context: the destructors
// of its captures may call the context. It may assign the variables that were passed to the call,
// which keeps the inputs that it was given.
//
// Side streams must be joined before a break. Throws InvalidArgument outside of a step, and in a
// step that another step calls; CaptureError if the capture so far cannot be kept, or while a
// stream of the caller is capturing.
void eager_break(EagerBreak work);

}  // namespace cgtree
