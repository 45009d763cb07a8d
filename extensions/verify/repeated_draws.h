// RepeatedDraws: draws the random numbers of a replay once more.
#pragma once

#include <vector>

#include "interop/random/generator.h"

namespace cgtree {

// A RepeatedDraws draws the numbers that a replay has drawn once more, and leaves all generators
// alone.
class RepeatedDraws final : public DrawHandler {
 public:
  RepeatedDraws() = default;
  RepeatedDraws(const RepeatedDraws&) = delete;
  RepeatedDraws& operator=(const RepeatedDraws&) = delete;

  // The replay has drawn `blocks` from there.
  void add(const PhiloxSequenceRef& sequence, const PhiloxPosition& first, std::uint64_t blocks);

  // How far a replay and the step have moved a generator.
  struct Move {
    PhiloxSequenceRef sequence;
    PhiloxPosition replayed;  // where the replay has left it
    PhiloxPosition now;       // where the step has
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
