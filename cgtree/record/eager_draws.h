// EagerDraws: what a step function draws while it runs eagerly, and the way back if it throws.
#pragma once

#include <vector>

#include "interop/random/generator.h"

namespace cgtree {

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

  // Puts every generator back to where the step found it; where others have moved it since, only as
  // far back as nobody else's draws are.
  void give_back() noexcept;

 private:
  // Invariant: from `before` to `after` the sequence was moved by this step alone.
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

}  // namespace cgtree
