// RepeatedDraws: draws the random numbers of a replay once more.
#pragma once

#include <vector>

#include "interop/random/generator.h"

namespace cgtree {

// A RepeatedDraws draws the numbers of a replay once more, and advances no generator.
class RepeatedDraws final : public DrawHandler {
 public:
  RepeatedDraws() = default;
  RepeatedDraws(const RepeatedDraws&) = delete;
  RepeatedDraws& operator=(const RepeatedDraws&) = delete;

  // Notes that the replay drew `blocks` from there.
  void add(const PhiloxSequenceRef& sequence, const PhiloxPosition& first, std::uint64_t blocks);

  // The positions of a generator after a replay and after the step.
  struct Move {
    PhiloxSequenceRef sequence;
    PhiloxPosition replayed;  // after the replay
    PhiloxPosition now;       // after the step
  };
  const std::vector<Move>& moves() const noexcept { return moves_; }

  // DrawHandler.
  PhiloxRange reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) override;
  void set_seed(const PhiloxSequenceRef& sequence, std::uint64_t seed) override;
  GeneratorState state(const PhiloxSequenceRef& sequence) override;
  void set_state(const PhiloxSequenceRef& sequence, const GeneratorState& state) override;

 private:
  Move& move_of(const PhiloxSequenceRef& sequence);

  std::vector<Move> moves_;
};

}  // namespace cgtree
