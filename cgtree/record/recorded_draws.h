// RecordedDraws: what a step function draws while it is recorded: nothing yet, but how much, and
// from where each replay will read the generator's position.
#pragma once

#include <memory>
#include <vector>

#include "cgtree/memory/table.h"
#include "interop/random/generator.h"

namespace cgtree {

// What a recording draws from one generator. The reference keeps the generator's position alive.
struct RecordedDraw {
  PhiloxSequenceRef sequence;
  Table origin;              // a PhiloxPosition: where the replay's blocks begin
  std::uint64_t blocks = 0;  // by which a replay moves the generator on
};

// Positions are counted from where the generator will be at the replay. A step function may go back
// to a state that it has taken itself, and then draws the same numbers again.
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

  // One for each generator that was drawn from. Ends the recording.
  std::vector<RecordedDraw> take();

 private:
  struct Use {
    RecordedDraw draw;
    // Where the sequence was when first seen, for state(); what replays do does not depend on it.
    PhiloxPosition seen;
    std::shared_ptr<const void> token;  // marks the states of this use; null until one is asked for
  };

  Use& use_of(const PhiloxSequenceRef& sequence);

  ContextMemory& memory_;
  std::vector<Use> uses_;
};

}  // namespace cgtree
