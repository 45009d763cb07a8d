// Draws: the random numbers that a step function draws when it runs eagerly or is recorded.
#pragma once

#include <memory>
#include <vector>

#include "cgtree/memory/context_memory.h"
#include "interop/random/generator.h"

namespace cgtree {

// EagerDraws moves generators at once and notes the distance, so that a step that throws can undo
// it.
class EagerDraws final : public DrawHandler {
 public:
  EagerDraws() = default;
  EagerDraws(const EagerDraws&) = delete;
  EagerDraws& operator=(const EagerDraws&) = delete;

  // Implements DrawHandler.
  PhiloxRange reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) override;
  void set_seed(const PhiloxSequenceRef& sequence, std::uint64_t seed) override;
  GeneratorState state(const PhiloxSequenceRef& sequence) override;
  void set_state(const PhiloxSequenceRef& sequence, const GeneratorState& state) override;

  // Moves every generator back to its position before the step. A generator that another thread has
  // moved since goes back only past the draws of this step that follow that thread's.
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

// A RecordedDraw is the use of one generator by a recording.
struct RecordedDraw {
  PhiloxSequenceRef sequence;  // keeps the generator's position alive
  Table origin;                // a PhiloxPosition on the device: the start of the replay's blocks
  std::uint64_t blocks = 0;    // the distance by which a replay moves the generator
};

// RecordedDraws only counts: a replay draws as many numbers, from the generator's position at that
// time. A step function may return to a state that it took itself, and then repeats the draws.
class RecordedDraws final : public DrawHandler {
 public:
  explicit RecordedDraws(ContextMemory& memory) noexcept : memory_(memory) {}
  RecordedDraws(const RecordedDraws&) = delete;
  RecordedDraws& operator=(const RecordedDraws&) = delete;

  // Implements DrawHandler.
  PhiloxRange reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) override;
  void set_seed(const PhiloxSequenceRef& sequence, std::uint64_t seed) override;
  GeneratorState state(const PhiloxSequenceRef& sequence) override;
  void set_state(const PhiloxSequenceRef& sequence, const GeneratorState& state) override;

  // Returns one entry for each generator that was used, and forgets them.
  std::vector<RecordedDraw> take();

 private:
  struct Use {
    RecordedDraw draw;
    // The position of the sequence at its first use, for state(); replays do not depend on it.
    PhiloxPosition seen;
    std::shared_ptr<const void> token;  // marks the states of this use; null until a state is taken
  };

  Use& use_of(const PhiloxSequenceRef& sequence);

  ContextMemory& memory_;
  std::vector<Use> uses_;
};

}  // namespace cgtree
