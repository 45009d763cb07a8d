// Advances copies of the positions at which a replay began to draw.
#include "extensions/verify/repeated_draws.h"

#include <algorithm>

namespace cgtree {

void RepeatedDraws::add(const PhiloxSequenceRef& sequence, const PhiloxPosition& first,
                        std::uint64_t blocks) {
  moves_.push_back({sequence, {first.seed, first.offset + blocks}, first});
}

// The replay has not advanced an unknown generator.
RepeatedDraws::Move& RepeatedDraws::move_of(const PhiloxSequenceRef& sequence) {
  const auto found = std::find_if(moves_.begin(), moves_.end(),
                                  [&](const Move& move) { return move.sequence == sequence; });
  if (found != moves_.end()) return *found;
  const PhiloxPosition position = sequence->position();
  return moves_.emplace_back(Move{sequence, position, position});
}

PhiloxRange RepeatedDraws::reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) {
  expect_no_capture();
  PhiloxPosition& now = move_of(sequence).now;
  const PhiloxRange range(now);
  now.offset += blocks;
  return range;
}

void RepeatedDraws::set_seed(const PhiloxSequenceRef& sequence, std::uint64_t seed) {
  set_state(sequence, {seed, 0, nullptr});
}

GeneratorState RepeatedDraws::state(const PhiloxSequenceRef& sequence) {
  const PhiloxPosition position = move_of(sequence).now;
  return {position.seed, position.offset, nullptr};
}

void RepeatedDraws::set_state(const PhiloxSequenceRef& sequence, const GeneratorState& state) {
  move_of(sequence).now = position_of(state);
}

}  // namespace cgtree
