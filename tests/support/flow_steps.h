// Random branches and loops, nested, on a device and in plain arithmetic.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "extensions/flow/loop_stream.h"
#include "interop/device/stream.h"
#include "interop/random/generator.h"
#include "interop/tensor/tensor.h"

namespace cgtree::testing {

// Work on one tensor, whose first element selects the branches.
struct Flow {
  enum class Kind {
    kUpdate,   // x = scale * x + shift
    kScratch,  // the same by way of a temporary tensor
    kFork,     // the same on a side stream, with x += uniform() if it draws
    kBoth,     // parts[0], then parts[1]
    kBranch,   // parts[0] if x[0] > limit, else parts[1], if there is one
    kChoose,   // part number floor(4 * x[0])
    kLoop,     // parts[0] while x[0] > limit, at most `rounds` times
    kResult,   // as kUpdate if x[0] > limit, else parts[0]; the result of a branch
    kBeside,   // parts[0] if x[0] > limit, beside a side stream; then x += its result
    kDraw,     // x += uniform()
  };

  Kind kind = Kind::kUpdate;
  float scale = 0.5F;
  float shift = 0;
  float limit = 0;
  int rounds = 1;
  bool is_flag_outside = false;  // the flag is made before the body, not inside it
  bool draws = false;
  std::vector<Flow> parts;
};

// Draws branches and loops up to three deep. `draws`: some bodies, and code around them, draw
// random numbers.
Flow draw_flow(std::mt19937& random, bool draws = false);

// Returns the side streams for flows. A forked stream stays in its capture, so each depth has
// separate streams.
std::vector<Stream> flow_sides(Device device);

// Returns true if the flow has a loop.
bool has_loop(const Flow& flow);

// Runs the flow on `x`, which is contiguous, on current_stream(). `sides`: see flow_sides().
// `generator`: for draws; may be null without them. `rows`: receives x in each round of an
// outermost loop; may be null.
void run_flow(const Flow& flow, const Tensor& x, std::span<const Stream> sides,
              const Generator* generator = nullptr, LoopStream* rows = nullptr);
// Runs the flow in plain arithmetic. Requires: values is not empty. `at`: the position of the
// generator. `is_stopped`: if set, the next loop that hands out rows ends after its first round and
// clears it.
void run_flow(const Flow& flow, std::vector<float>& values, PhiloxPosition* at = nullptr,
              std::vector<std::vector<float>>* rows = nullptr, bool* is_stopped = nullptr);

}  // namespace cgtree::testing
