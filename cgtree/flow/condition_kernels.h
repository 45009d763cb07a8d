// The kernels that set conditions, which nvcc compiles. They are launched on a stream, without
// checks. Those of loops set no condition that is null.
#pragma once

#include <cstdint>

#include "cgtree/flow/ring.h"
#include "interop/device/conditional_api.h"
#include "interop/device/stream.h"

namespace cgtree {

// A FlagInMemory is where a kernel reads whether to go on, or which body to take: an int32, or a
// bool.
struct FlagInMemory {
  const void* address = nullptr;
  bool is_bool = false;

  CGTREE_HOST_DEVICE std::int32_t read() const {
    return is_bool ? static_cast<std::int32_t>(*static_cast<const std::uint8_t*>(address) != 0)
                   : *static_cast<const std::int32_t*>(address);
  }
};

// The condition becomes the value of the flag; `last` if that is not from 0 to `last`, unless
// `last` is negative.
void launch_set_condition(StreamRef stream, FlagInMemory flag, std::int32_t last,
                          ConditionHandle condition);
// In front of a loop: *rounds = 0, and the condition holds.
void launch_begin_loop(StreamRef stream, std::int32_t* rounds, ConditionHandle condition);
// At the end of a round: *rounds += 1; the condition holds if the flag is not 0 and *rounds <
// max_rounds.
void launch_end_round(StreamRef stream, FlagInMemory flag, std::int32_t* rounds,
                      std::int32_t max_rounds, ConditionHandle condition);
// The same for a loop whose rows go to a ring: it has another number, and *rounds = 0.
void launch_begin_ring_loop(StreamRef stream, const Ring& ring, std::int32_t* rounds,
                            ConditionHandle condition);
// As launch_end_round(), where the host may have stopped the loop, too. The round's row, `bytes` at
// `row`, a multiple of 4, goes to the ring, and whether there is another one to its state.
void launch_end_ring_round(StreamRef stream, const Ring& ring, const void* row, std::uint32_t bytes,
                           FlagInMemory flag, std::int32_t* rounds, std::int32_t max_rounds,
                           ConditionHandle condition);

}  // namespace cgtree
