// Generator: a source of random numbers: a seed, and how much of its sequence has been used.
//
//   cgtree::Generator generator(42);
//   cgtree::compile(context, "noise", [=](cgtree::Tensor x) {
//     return add(x, cgtree::normal({x.dim(0)}, generator)); });
//
// The sequence of a seed is 2^64 blocks of four 32-bit words (philox.h), and kernels compute any
// block from its number. So a generator is only a counter on the host: it serves every device, and
// reserve() is all that drawing costs.
//
// In step functions, calls draw the same numbers whether they run eagerly or replay: each replay
// takes as many blocks as the recorded call did, from where the generator is then. Recording
// itself takes none, its first launch does. A call that throws gives back what it took (unless
// someone else has drawn since: then those blocks are lost).
#pragma once

#include <cstdint>
#include <memory>

#include "interop/random/philox.h"
#include "interop/random/philox_sequence.h"

namespace cgtree {

// Where a generator is, as a value.
struct GeneratorState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  // blocks used so far
  // Null, unless this was taken inside a step function while it was recorded: then the numbers
  // above are not those of later replays, and set_state() takes it only within the same call.
  std::shared_ptr<const void> recording;

  bool operator==(const GeneratorState&) const = default;
};

// Copying copies the handle: all copies share one position. A recording keeps the generator that it
// was recorded with, as it keeps everything else of that call.
//
// Threads: any; ranges reserved by several threads never overlap. The step functions of several
// contexts may share one. Inside a step function, use it on the thread that runs the function.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0);

  std::uint64_t seed() const { return state().seed; }
  // Begins the sequence of `seed`; the next draw or replay obeys. Throws InvalidArgument inside a
  // step function that is being recorded: its replays would not reseed.
  void set_seed(std::uint64_t seed) const;

  GeneratorState state() const;
  // Obeyed by the next draw or replay. Inside a step function that is being recorded only what
  // state() gave in the same call can be set; all else throws InvalidArgument.
  void set_state(const GeneratorState& state) const;

  // Sets the next `blocks` blocks aside for kernels launched on current_stream(). Throws
  // InvalidArgument if the stream is captured by someone else: every launch of that graph would
  // repeat the numbers; and OutOfMemory while recording.
  PhiloxRange reserve(std::uint64_t blocks) const;

 private:
  PhiloxSequenceRef sequence_;
};

}  // namespace cgtree
