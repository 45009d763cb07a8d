// BodyScope and BodyMemory: what the body of a branch or loop may do while it enqueues its work,
// and what it allocates meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "cgtree/record/breaks.h"
#include "cgtree/record/step.h"
#include "interop/device/stream.h"
#include "interop/random/generator.h"
#include "interop/tensor/empty.h"

namespace cgtree {

// A Body is the code of one body. `name`: for messages, such as "body 1 of choose()". enqueue()
// returns the results of the body, or the flag of a loop.
struct Body {
  std::string name;
  std::function<std::vector<Tensor>()> enqueue;
};

// While a BodyScope lives, its thread is inside a body, however that runs. A body has no breaks,
// draws no random numbers and asks for no axis_length(), because a replay runs it none or many
// times. What it allocates has no number in the step.
class BodyScope final : private BreakHandler, private DrawHandler {
 public:
  // Borrows the body.
  explicit BodyScope(const Body& body) noexcept;
  ~BodyScope();
  BodyScope(const BodyScope&) = delete;
  BodyScope& operator=(const BodyScope&) = delete;

 private:
  void eager_break(EagerBreak work) override;
  PhiloxRange reserve(const PhiloxSequenceRef&, std::uint64_t) override { refuse_draw(); }
  void set_seed(const PhiloxSequenceRef&, std::uint64_t) override { refuse_draw(); }
  GeneratorState state(const PhiloxSequenceRef&) override { refuse_draw(); }
  void set_state(const PhiloxSequenceRef&, const GeneratorState&) override { refuse_draw(); }
  [[noreturn]] void refuse_draw() const;

  const Body& body_;
  std::uint32_t* const count_;  // of allocations of the step; null outside of steps
  const std::uint32_t counted_;
  const BreakScope breaks_{this};
  const LengthsScope no_lengths_{nullptr};
  const DrawHandlerScope draws_{*this};
};

// A BodyMemory serves empty() while a body is captured. What the body allocates stays allocated
// until the body ends: each round writes it anew, and a part of it that was used again within the
// body would be safe only where its work is one chain. The bodies of a choice, of which one runs,
// get the same memory one after the other.
class BodyMemory final : public StorageAllocator {
 public:
  // kTrial: the capture is not kept, and no uses are noted.
  enum class Of { kTrial, kRecording };

  // Borrows the body. `fork`: of the stream that it is captured on; null where the step's own fork
  // sees all streams.
  BodyMemory(const Body& body, Of of, const StreamFork* fork) noexcept;
  // Frees what the body has made; but while a body around this one has a side stream that has not
  // joined, and that may run beside this one, hands it on to that body.
  ~BodyMemory();
  BodyMemory(const BodyMemory&) = delete;
  BodyMemory& operator=(const BodyMemory&) = delete;

  // Returns whether one is open on this thread.
  static bool is_current() noexcept;
  // Throws InvalidArgument if a tensor that the body has made is still held.
  void check_nothing_kept() const;
  // Where what is used outside of the body comes from.
  StorageAllocator& outside() const noexcept { return outer_ != nullptr ? *outer_ : *base_; }

  // StorageAllocator.
  StorageRef allocate(std::size_t bytes) override;
  Device device() const noexcept override { return base_->device(); }
  void made_elsewhere(const StorageRef& storage) override;
  bool keep(const StorageRef& storage) override;

 private:
  const Body& body_;
  const Of of_;
  const StreamFork* const fork_;
  BodyMemory* const outer_;
  StorageAllocator* const base_;  // of the step
  std::list<StorageRef> made_;
  std::list<StorageRef> handed_on_;  // by bodies in this one
  const AllocatorScope scope_{*this};
};

}  // namespace cgtree
