// Generator: a source of random numbers: a seed, and a position in its sequence.
//
//   cgtree::Generator generator(42);
//   cgtree::compile(context, "noise", [=](cgtree::Tensor x) {
//     return add(x, cgtree::normal({x.dim(0)}, generator)); });
//
// The sequence of a seed is 2^64 blocks of four 32-bit words (philox.h), and kernels compute any
// block from its number. A generator is therefore only a counter on the host: it serves every
// device, and drawing costs one reserve().
//
// In step functions, calls draw the same numbers whether they run eagerly or replay: each replay
// takes as many blocks as the recorded call did, from the generator's position at that time.
// Recording itself takes none; its first launch does. A call that throws returns its blocks, unless
// another thread has drawn since; then they are lost.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "base/frame.h"
#include "base/mutex.h"
#include "interop/random/philox.h"

namespace cgtree {

// A PhiloxSequence is the position that all handles of a generator share.
//
// Seed and offset are taken and set together, so that ranges never overlap on any threads. This
// needs a lock with two atomic operations; a bare counter would need one.
//
// Thread safety: any thread.
class PhiloxSequence {
 public:
  // Begins at a position.
  explicit PhiloxSequence(const PhiloxPosition& position) noexcept : position_(position) {}

  // Returns the next block that take() returns.
  PhiloxPosition position() const noexcept {
    const std::lock_guard lock(mutex_);
    return position_;
  }
  // Advances by `blocks`, and returns the position of the first.
  PhiloxPosition take(std::uint64_t blocks) noexcept {
    const std::lock_guard lock(mutex_);
    const PhiloxPosition first = position_;
    position_.offset += blocks;
    return first;
  }
  // Sets the position, and returns the previous one.
  PhiloxPosition set(const PhiloxPosition& position) noexcept {
    const std::lock_guard lock(mutex_);
    const PhiloxPosition before = position_;
    position_ = position;
    return before;
  }
  // Returns from `now` to `before`, unless the position has changed since.
  void give_back(const PhiloxPosition& now, const PhiloxPosition& before) noexcept {
    const std::lock_guard lock(mutex_);
    if (position_ == now) position_ = before;
  }

 private:
  mutable SpinMutex<LockRank::kLeaf> mutex_;
  PhiloxPosition position_;  // guarded by mutex_
};

// Shared by the handles of a generator and the recordings that draw from it.
using PhiloxSequenceRef = std::shared_ptr<PhiloxSequence>;

// The position of a generator, as a value.
struct GeneratorState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  // blocks used so far
  // Not null if state() was called inside a step function while it was recorded. Then the numbers
  // above are not those of later replays, and set_state() accepts this state only within the same
  // call.
  std::shared_ptr<const void> recording;

  bool operator==(const GeneratorState&) const = default;
};

// Copying a Generator copies the handle: all copies share one position. A recording keeps the
// generator that it was recorded with.
//
// Thread safety: any thread; ranges reserved by several threads never overlap, and step functions
// of several contexts may share a generator. Inside a step function it must be used on the thread
// that runs the function.
class Generator {
 public:
  // Begins at the first block of the sequence of `seed`.
  explicit Generator(std::uint64_t seed = 0);

  // The seed that the next draw uses.
  std::uint64_t seed() const { return state().seed; }
  // Begins the sequence of `seed` at the next draw or replay. Throws InvalidArgument inside a step
  // function that is being recorded: its replays would not reseed.
  void set_seed(std::uint64_t seed) const;

  // Returns the position of the next draw. In a step function that is being recorded it is valid in
  // that call alone.
  GeneratorState state() const;
  // Takes effect at the next draw or replay. Inside a step function that is being recorded, throws
  // InvalidArgument for a state that state() did not return in the same call.
  void set_state(const GeneratorState& state) const;

  // Reserves the next `blocks` blocks for kernels launched on current_stream(). Throws
  // InvalidArgument if the stream is captured, but not by a context: every launch of that graph
  // would repeat the numbers. Throws OutOfMemory while recording.
  PhiloxRange reserve(std::uint64_t blocks) const;

  // The identity of the generator for a DrawHandler.
  const PhiloxSequenceRef& sequence() const noexcept { return sequence_; }

 private:
  PhiloxSequenceRef sequence_;
};

// A DrawHandler serves the generators that a step function uses while it runs on the thread. Its
// functions correspond to those of Generator.
class DrawHandler {
 public:
  // The next four are those of Generator, for the generator that has this sequence.
  virtual PhiloxRange reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) = 0;
  virtual void set_seed(const PhiloxSequenceRef& sequence, std::uint64_t seed) = 0;
  virtual GeneratorState state(const PhiloxSequenceRef& sequence) = 0;
  virtual void set_state(const PhiloxSequenceRef& sequence, const GeneratorState& state) = 0;

 protected:
  ~DrawHandler() = default;
};

// A DrawHandlerScope makes `handler` serve every generator on this thread until it ends. Scopes
// nest.
class DrawHandlerScope {
 public:
  // Borrows the handler.
  explicit DrawHandlerScope(DrawHandler& handler) noexcept : scope_(&handler) {}

 private:
  const FrameScope<&Frame::draws> scope_;
};

// Throws InvalidArgument if the current stream is being captured: numbers reserved now would be
// constants in the graph.
void expect_no_capture();

// Returns the position of a state. Throws InvalidArgument if the state was taken while recording.
PhiloxPosition position_of(const GeneratorState& state);

}  // namespace cgtree
