// Draws: what a step function draws from random generators, while it runs eagerly and while it is
// recorded.
#pragma once

#include <memory>
#include <vector>

#include "cgtree/memory/context_memory.h"
#include "interop/random/generator.h"

namespace cgtree {

// EagerDraws moves generators at once, and notes how far, so that a step that throws leaves no
// trace in them.
class EagerDraws final : public DrawHandler {
 public:
  EagerDraws() = default;
  EagerDraws(const EagerDraws&) = delete;
  EagerDraws& operator=(const EagerDraws&) = delete;

  // DrawHandler.
  PhiloxRange reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) override;
  void set_seed(const PhiloxSequenceRef& sequence, std::uint64_t seed) override;
  GeneratorState state(const PhiloxSequenceRef& sequence) override;
  void set_state(const PhiloxSequenceRef& sequence, const GeneratorState& state) override;

  // Puts every generator back to where the step found it. A generator that another thread has moved
  // since goes back only as far as that thread's draws stay its own.
  void give_back() noexcept;

 private:
  // Invariant: this step alone moved the sequence from `before` to `after`.
  struct Move {
    PhiloxSequenceRef sequence;
    PhiloxPosition before;
    PhiloxPosition after;
  };

  void note(const PhiloxSequenceRef& sequence, const PhiloxPosition& from,
            const PhiloxPosition& to);
  void reserve_note();

  std::vector<Move> moves_;  // one for each generator
};

// A RecordedDraw is what a recording draws from one generator.
struct RecordedDraw {
  PhiloxSequenceRef sequence;  // keeps the generator's position alive
  Table origin;                // a PhiloxPosition on the device: where the replay's blocks begin
  std::uint64_t blocks = 0;    // by which a replay moves the generator on
};

// RecordedDraws draws nothing, but counts: a replay draws as much, from where the generator will be
// then. A step function may go back to a state that it has taken itself, and then draws the same
// numbers again.
class RecordedDraws final : public DrawHandler {
 public:
  explicit RecordedDraws(ContextMemory& memory) noexcept : memory_(memory) {}
  RecordedDraws(const RecordedDraws&) = delete;
  RecordedDraws& operator=(const RecordedDraws&) = delete;

  // DrawHandler.
  PhiloxRange reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) override;
  void set_seed(const PhiloxSequenceRef& sequence, std::uint64_t seed) override;
  GeneratorState state(const PhiloxSequenceRef& sequence) override;
  void set_state(const PhiloxSequenceRef& sequence, const GeneratorState& state) override;

  // Returns one entry for each generator that was drawn from, and forgets them.
  std::vector<RecordedDraw> take();

 private:
  struct Use {
    RecordedDraw draw;
    // Where the sequence was when first seen, for state(); replays do not depend on it.
    PhiloxPosition seen;
    std::shared_ptr<const void> token;  // marks the states of this use; null until one is asked for
  };

  Use& use_of(const PhiloxSequenceRef& sequence);

  ContextMemory& memory_;
  std::vector<Use> uses_;
};

}  // namespace cgtree
