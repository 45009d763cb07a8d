// BodyScope and BodyMemory: the draws and the allocations of the body of a branch or loop.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cgtree/record/breaks.h"
#include "cgtree/record/step.h"
#include "interop/device/stream.h"
#include "interop/random/generator.h"
#include "interop/tensor/empty.h"

namespace cgtree {

// A Restored sets a variable, and restores it at its end.
template <typename T>
class Restored {
 public:
  Restored(T& variable, T value) noexcept
      : variable_(variable), outer_(std::exchange(variable, value)) {}
  ~Restored() { variable_ = outer_; }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  T& variable_;
  const T outer_;
};

// A FlowDraws holds the generators that the bodies of one branch or loop may draw from. Only the
// device knows how often a body runs, and the generators must not depend on it: the call takes one
// block of each generator; with the number of the round it begins a sequence for each run of a body
// (draws_of_round()).
class FlowDraws {
 public:
  // Borrows the generators.
  explicit FlowDraws(std::span<const Generator> generators) noexcept : generators_(generators) {}

  // Takes the blocks. `round`: the address at which the device counts the rounds of a loop. Must be
  // called once, before any body runs or is captured. Throws as Generator::reserve().
  void reserve(const std::int32_t* round = nullptr);

 private:
  friend class BodyScope;

  const std::span<const Generator> generators_;
  std::vector<PhiloxRange> blocks_;  // of each
  const std::int32_t* round_ = nullptr;
};

// A Body is the code of one body. `name`: for messages, such as "body 1 of choose()". enqueue()
// returns the results of the body, or the flag of a loop. `draws`: borrowed.
struct Body {
  std::string name;
  const FlowDraws& draws;
  std::function<std::vector<Tensor>()> enqueue;
};

// While a BodyScope lives, its thread is inside a body. A body has no breaks, and must not ask for
// the position of a generator, because a replay may skip or repeat it. Its allocations have no
// number in the step.
class BodyScope final : private BreakHandler, private DrawHandler {
 public:
  // Borrows the body. `round`: for a body that runs now; nullopt for a body that current_stream()
  // captures. Throws InvalidArgument, OutOfMemory.
  BodyScope(const Body& body, std::optional<std::int32_t> round);
  BodyScope(const BodyScope&) = delete;
  BodyScope& operator=(const BodyScope&) = delete;

 private:
  // The draws of this run from one generator.
  struct Draws {
    PhiloxSequenceRef sequence;
    Tensor place;          // the address of the position, for a captured body
    PhiloxPosition first;  // for a body that runs now
    std::uint64_t blocks = 0;
  };

  void eager_break(EagerBreak work) override;
  PhiloxRange reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) override;
  void set_seed(const PhiloxSequenceRef&, std::uint64_t) override { refuse_position(); }
  GeneratorState state(const PhiloxSequenceRef&) override { refuse_position(); }
  void set_state(const PhiloxSequenceRef&, const GeneratorState&) override { refuse_position(); }
  [[noreturn]] void refuse_position() const;

  const Body& body_;
  std::vector<Draws> made_;
  std::optional<Restored<std::uint32_t>> uncounted_;  // keeps the step's count of allocations
  const BreakScope breaks_{this};
  const DrawHandlerScope draws_{*this};
};

// A BodyMemory serves empty() while a body is captured. The body reuses memory that it released
// while its work is one chain: no side stream of the body, or around it, has yet to join. Other
// memory stays allocated until the body ends, as does released memory from outside of the body,
// because the next round of a loop reads it again. The bodies of a choice get the same memory in
// turn.
class BodyMemory final : public StorageAllocator {
 public:
  // Borrows the body. `fork`: of the stream on which the body is captured; null where the step's
  // own fork sees all streams.
  BodyMemory(const Body& body, const StreamFork* fork) noexcept;
  // Frees the tensors of the body, or hands them on to an enclosing body with a side stream that
  // has not joined and may run beside this body.
  ~BodyMemory();
  BodyMemory(const BodyMemory&) = delete;
  BodyMemory& operator=(const BodyMemory&) = delete;

  // Returns whether one is open on this thread.
  static bool is_current() noexcept;
  // Throws InvalidArgument if a tensor of the body is still held.
  void check_nothing_kept() const;
  // The allocator of memory that outlives the body.
  StorageAllocator& outside() const noexcept { return outer_ != nullptr ? *outer_ : *base_; }

  // StorageAllocator.
  StorageRef allocate(std::size_t bytes) override;
  Device device() const noexcept override { return base_->device(); }
  void made_elsewhere(const StorageRef& storage) override;
  bool keep(const StorageRef& storage) override;

 private:
  // While the result lives, released memory is freed at once.
  static Restored<bool> free_at_once() noexcept;
  bool is_one_chain() const noexcept;

  const Body& body_;
  const StreamFork* const fork_;
  BodyMemory* const outer_;
  StorageAllocator* const base_;  // of the step
  std::list<StorageRef> made_;
  std::list<StorageRef> handed_on_;  // by nested bodies
  bool was_in_body_ = false;
  const AllocatorScope scope_{*this};
};

// Returns whether a step is warmed up on this thread.
bool is_warming_up() noexcept;

// Runs the body eagerly on current_stream() and passes its results to use(), outside of the body's
// scopes, before its memory is freed. A warm-up checks that the body keeps none of this memory.
template <typename Use>
void run_eagerly(const Body& body, std::int32_t round, const Use& use) {
  std::optional<BodyMemory> memory;
  if (is_warming_up()) memory.emplace(body, nullptr);
  {
    std::vector<Tensor> returned;
    {
      const BodyScope scope(body, round);
      returned = body.enqueue();
    }
    std::optional<AllocatorScope> outside;
    if (memory) outside.emplace(memory->outside());
    use(returned);
  }
  if (memory) memory->check_nothing_kept();
}

}  // namespace cgtree
