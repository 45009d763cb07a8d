// The kernels that set conditions, and begin the random numbers of bodies, which nvcc compiles.
// They are launched on a stream, without checks. Those of loops do not set a null condition.
#pragma once

#include <cstdint>

#include "extensions/flow/ring.h"
#include "interop/device/condition.h"
#include "interop/device/stream.h"
#include "interop/random/philox.h"

namespace cgtree {

// A FlagInMemory is the address at which a kernel reads whether to go on, or which body to take: an
// int32, or a bool if is_bool is not 0.
struct FlagInMemory {
  const void* address = nullptr;
  std::uint64_t is_bool = 0;

  CGTREE_HOST_DEVICE std::int32_t read() const {
    return is_bool != 0 ? static_cast<std::int32_t>(*static_cast<const std::uint8_t*>(address) != 0)
                        : *static_cast<const std::int32_t*>(address);
  }
};

// Returns the position at which a run of a body begins to draw. `call`: one block, which the branch
// or loop reserved. Its randomness keeps the seeds and offsets of any two runs apart.
CGTREE_HOST_DEVICE constexpr PhiloxPosition draws_of_round(const PhiloxBlock& call,
                                                           std::int32_t round) {
  const PhiloxBlock own =
      philox4x32({{static_cast<std::uint32_t>(round), 0, call.words[2], call.words[3]}},
                 call.words[0], call.words[1]);
  return {static_cast<std::uint64_t>(own.words[1]) << 32 | own.words[0],
          static_cast<std::uint64_t>(own.words[3]) << 32 | own.words[2]};
}

// *place = draws_of_round(the first block of `call`, *round), in round 0 if `round` is null.
void launch_begin_draws(StreamRef stream, const PhiloxRange& call, const std::int32_t* round,
                        PhiloxPosition* place);
// Sets the condition to the value of the flag; to `last` if that is not from 0 to `last`, unless
// `last` is negative.
void launch_set_condition(StreamRef stream, FlagInMemory flag, std::int32_t last,
                          ConditionHandle condition);
// Before a loop: *rounds = 0, and the condition holds. `ring`: counts the loops whose rows go
// there; or null.
void launch_begin_loop(StreamRef stream, std::int32_t* rounds, ConditionHandle condition,
                       RingState* ring = nullptr);
// At the end of a round: *rounds += 1; the condition holds if the flag is not 0 and *rounds <
// max_rounds.
void launch_end_round(StreamRef stream, FlagInMemory flag, std::int32_t* rounds,
                      std::int32_t max_rounds, ConditionHandle condition);
// As launch_end_round(), where the host may have stopped the loop, too. The round's row, `bytes` at
// `row`, a multiple of 4, goes to the ring, and the decision about another round to its state.
void launch_end_ring_round(StreamRef stream, const Ring& ring, const void* row, std::uint32_t bytes,
                           FlagInMemory flag, std::int32_t* rounds, std::int32_t max_rounds,
                           ConditionHandle condition);

}  // namespace cgtree
