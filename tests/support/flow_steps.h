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

// A Flow is work on one tensor whose first element says which way to go.
struct Flow {
  enum class Kind {
    kUpdate,   // x = scale * x + shift
    kScratch,  // the same by way of a tensor of its own
    kFork,     // the same on a side stream, where x += uniform(), too, if it draws
    kBoth,     // parts[0], then parts[1]
    kBranch,   // parts[0] if x[0] > limit, else parts[1], if there is one
    kChoose,   // part number floor(4 * x[0])
    kLoop,     // parts[0] while x[0] > limit, at most `rounds` times
    kResult,   // as kUpdate if x[0] > limit, else parts[0], as what a branch returns
    kBeside,   // parts[0] if x[0] > limit; then x += what a side stream has made of x meanwhile
    kDraw,     // x += uniform()
  };

  Kind kind = Kind::kUpdate;
  float scale = 0.5F;
  float shift = 0;
  float limit = 0;
  int rounds = 1;
  bool is_flag_outside = false;  // the flag is made outside of the body, else in it
  bool draws = false;
  std::vector<Flow> parts;
};

// Branches and loops up to three deep. `draws`: some of them, and what is around them, draw.
Flow draw_flow(std::mt19937& random, bool draws = false);

// The side streams of flows. A stream that is forked stays in its capture, so that those of a body
// are not those of what is around it.
std::vector<Stream> flow_sides(Device device);

// Returns whether there is a loop in it.
bool has_loop(const Flow& flow);

// Runs it on `x`, which is contiguous, on current_stream(). `sides`: see flow_sides(). `generator`:
// what it draws from; may be null if it does not. `rows`: where each round of a loop that is in no
// other one hands out x; may be null.
void run_flow(const Flow& flow, const Tensor& x, std::span<const Stream> sides,
              const Generator* generator = nullptr, LoopStream* rows = nullptr);
// The same. Requires: values is not empty. `at`: the position of the generator. `is_stopped`: the
// next loop that hands out rows ends with its first round, if it is set, and clears it.
void run_flow(const Flow& flow, std::vector<float>& values, PhiloxPosition* at = nullptr,
              std::vector<std::vector<float>>* rows = nullptr, bool* is_stopped = nullptr);

}  // namespace cgtree::testing
