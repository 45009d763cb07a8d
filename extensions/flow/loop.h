// run_loop(): the rounds of a loop, eager or recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "extensions/flow/body.h"
#include "extensions/flow/conditional.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// The Rounds of a loop are counted on the device, which decides whether another one follows. In an
// eager run the condition is null.
struct Rounds {
  SetCondition begin;
  EndBody end_round;  // after the work of a round
  // Reads on the host whether there is another round. Called in an eager run, after end_round().
  std::function<bool(StreamRef, std::span<const Tensor>)> goes_on;
};

// Returns max_rounds. Throws InvalidArgument unless 1 <= max_rounds < 2^31.
std::int32_t expect_max_rounds(std::int64_t max_rounds);

// Makes the tensor that counts the rounds of a loop on current_stream(), takes the blocks of its
// draws, and calls run(count), which must call run_loop(). Returns the tensor. Throws as these do.
Tensor run_counted(FlowDraws& draws, const std::function<void(const Tensor& count)>& run);

// Runs the body round by round on current_stream(), or adds the loop to the recording. Throws as
// is_captured() and add_conditional().
void run_loop(const Body& body, const Rounds& rounds);

}  // namespace cgtree
