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
#include <mutex>

#include "base/spinning_mutex.h"
#include "interop/random/philox.h"

namespace cgtree {

class PhiloxSequence {
 public:
  explicit PhiloxSequence(const PhiloxPosition& position) noexcept : position_(position) {}

  PhiloxPosition position() const noexcept {
    const std::lock_guard lock(mutex_);
    return position_;
  }
  // Moves on by `blocks`; answers where they begin.
  PhiloxPosition take(std::uint64_t blocks) noexcept {
    const std::lock_guard lock(mutex_);
    const PhiloxPosition first = position_;
    position_.offset += blocks;
    return first;
  }
  // Answers where it was.
  PhiloxPosition set(const PhiloxPosition& position) noexcept {
    const std::lock_guard lock(mutex_);
    const PhiloxPosition before = position_;
    position_ = position;
    return before;
  }
  // Goes back from `now` to `before`, unless someone has moved it since.
  void give_back(const PhiloxPosition& now, const PhiloxPosition& before) noexcept {
    const std::lock_guard lock(mutex_);
    if (position_ == now) position_ = before;
  }

 private:
  mutable SpinningMutex mutex_;
  PhiloxPosition position_;  // guarded by mutex_
};

using PhiloxSequenceRef = std::shared_ptr<PhiloxSequence>;

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

// See Generator for what each is to do.
class DrawHandler {
 public:
  virtual PhiloxRange reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) = 0;
  virtual void set_seed(const PhiloxSequenceRef& sequence, std::uint64_t seed) = 0;
  virtual GeneratorState state(const PhiloxSequenceRef& sequence) = 0;
  virtual void set_state(const PhiloxSequenceRef& sequence, const GeneratorState& state) = 0;

 protected:
  ~DrawHandler() = default;
};

// Makes `handler` answer for every generator on this thread until the scope ends. Scopes nest.
class DrawHandlerScope {
 public:
  explicit DrawHandlerScope(DrawHandler& handler) noexcept;
  ~DrawHandlerScope();
  DrawHandlerScope(const DrawHandlerScope&) = delete;
  DrawHandlerScope& operator=(const DrawHandlerScope&) = delete;

 private:
  DrawHandler* previous_;
};

// Throws InvalidArgument if the current stream is being captured: numbers reserved now would be
// frozen in the graph.
void expect_no_capture();

// The position of a state; throws InvalidArgument if it was taken while recording.
PhiloxPosition position_of(const GeneratorState& state);

}  // namespace cgtree
